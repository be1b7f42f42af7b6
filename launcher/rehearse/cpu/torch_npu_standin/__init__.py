"""torch_npu, CANN's Python packages and their fused operators on CPU, in plain torch.

For child processes that rehearse an Ascend job. An operator computes what its documentation says, in float32 inside;
one that has no stand-in raises when it is called.
Importing this package imports nothing heavy; `install()` does.
"""

_PACKAGES = {
    "torch_npu": "2.7.1.post2",
    "acl": "1.0.0",
    "torchair": "1.0.0",
    "te": "1.0.0",
    "tbe": "1.0.0",
    "mindio_acp": "1.0.0",
    "mindio_ttp": "1.0.0",
    "triton": "3.2.0",
}
"""Packages that come with CANN (and its triton), with the versions that upstream's checks require."""


def install() -> None:
    """Install the stand-ins once in a child process, after ``torch_cuda.install()``, before upstream loads."""
    from launcher.rehearse.cpu.torch_npu_standin import devices, mixed_types, operators, placeholders, triton_driver

    placeholders.provide(_PACKAGES)
    torch_npu = operators.install()
    mixed_types.install()
    devices.present_as_ascend(torch_npu)
    triton_driver.present_as_ascend()
