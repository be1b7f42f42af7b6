"""The part of triton that upstream uses at import: the device of its active driver."""

import importlib
from typing import Any

from launcher.rehearse.cpu.torch_npu_standin.devices import DEVICE_NAME


class _Target:
    """Result of get_current_target on Ascend."""

    backend = "npu"
    arch = DEVICE_NAME
    warp_size = 0


class _ActiveDriver:
    """Replacement of triton.runtime.driver.active."""

    class utils:
        """Device properties as triton's driver reports them."""

        @staticmethod
        def get_device_properties(_device: Any = None) -> dict[str, int]:
            return {"num_aicore": 24, "num_vectorcore": 48}

    @staticmethod
    def get_current_target() -> _Target:
        return _Target()

    @staticmethod
    def get_current_device() -> int:
        return 0


def present_as_ascend() -> None:
    """Make the triton placeholder's active driver report an Ascend device."""
    driver = importlib.import_module("triton.runtime.driver")
    vars(driver)["active"] = _ActiveDriver()
    runtime = importlib.import_module("triton.runtime")
    vars(runtime)["driver"] = driver
    triton = importlib.import_module("triton")
    vars(triton)["runtime"] = runtime
