"""Sources of fields: the upstream file or class that defines an argument."""

ARGUMENTS = "Megatron-LM arguments.py"
DDP_CONFIG = "Megatron-core DistributedDataParallelConfig"
MODEL_PARALLEL_CONFIG = "Megatron-core ModelParallelConfig"
OPTIMIZER_CONFIG = "Megatron-core OptimizerConfig"
PRETRAINED_CONFIG = "Hugging Face PretrainedConfig"
TRANSFORMER_CONFIG = "Megatron-core TransformerConfig"
