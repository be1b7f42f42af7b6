"""Descriptions of MindFormers keys that share a table row, and reasons why some have no field.

From mindformers/core/{optim,lr,callback}, dataset/ and parallel_core/transformer_config.py at 2.1.0, models/ at 1.6.0.
"""

from collections.abc import Mapping

from backends.mindformers.native_only.model import below_model
from launcher.mapping.native_only import NativeOnlyArg, row, single_rows


def _of(section: str, given: Mapping[str, str]) -> dict[str, str]:
    return {f"{section}.{name}": phrase for name, phrase in given.items()}


_OPTIMIZER = {
    "amsgrad": "keeps the largest second moment (AMSGrad)",
    "maximize": "climbs instead of descending",
    "beta3": "sets CAME's decay of the instability",
    "clip_threshold": "bounds CAME's and Adafactor's updates by their root mean square",
    "decay_rate": "sets the decay of CAME's and Adafactor's squared gradients",
    "compression": "keeps CAME's averages in fp16",
    "relative_step": "derives the learning rate from the step number",
    "scale_parameter": "scales the learning rate by the size of the weights",
    "warmup_init": "starts the derived learning rate low",
    "loss_scale": "divides gradients by a fixed loss scale",
    "fused_num": "sets how many sets of weights PmaAdamW averages",
    "interleave_step": "sets how often PmaAdamW takes weights for its average, in steps",
    "fused_algo": "chooses how PmaAdamW averages weights (sma, ema)",
    "ema_alpha": "sets the decay of PmaAdamW's exponential average",
    "adamw_betas": "sets the decays of the AdamW that goes beside Muon",
    "adamw_eps": "sets the epsilon of the AdamW that goes beside Muon",
}
_SCHEDULE = {
    "decay_steps": "sets how many steps the learning rate falls",
    "decay_ratio": "sets the share of all steps in which the learning rate falls",
    "decay_start_ratio": "sets the share of all steps after which the learning rate falls",
    "keep_steps": "sets how many steps the highest learning rate is kept",
    "final_steps": "sets how many steps the learning rate lr_end1 is kept",
    "lr_end1": "sets the learning rate after the first decay",
    "lr_end2": "sets the learning rate at the very end",
    "lr_scale": "multiplies the learning rate",
    "num_cycles": "sets the number of waves of the cosine",
    "t_0": "sets the steps before the cosine's first restart",
    "t_mult": "stretches the time between restarts of the cosine",
    "t_max": "sets the half period of the cosine, in steps",
}
_MODEL = {
    "softmax_scale": "scales attention scores before the softmax",
    "use_alibi_mask": "adds ALiBi's distances to attention scores",
    "layernorm_zero_centered_gamma": "keeps the norms' weights around 0",
    "attn_proj_has_bias": "adds a bias to attention's output",
    "out_proj_has_bias": "adds a bias to attention's output",
    "mlp_has_bias": "adds biases to the MLP",
    "embedding_init_type": "sets the precision of embeddings",
    "ffn_dim_multiplier": "multiplies the MLP's width",
    "multiple_of": "rounds the MLP's width up",
    "multi_query_attention": "shares keys and values among heads",
    "post_layer_norm": "normalises after the last layer",
    "post_mlp_layernorm": "normalises after the MLP, too",
    "post_self_attn_layernorm": "normalises after attention, too",
    "rmsnorm": "normalises by the root mean square",
    "logn": "scales attention by the logarithm of the length",
    "embed_layernorm": "normalises embeddings",
}
_LOADER = {
    "sub_data_loader": "names the loaders whose data are mixed",
    "sub_data_loader_args": "sets the loaders whose data are mixed",
    "dataset_ratios": "sets the shares in which data sets are mixed",
    "samples_count": "sets how many samples the mixed data have",
    "nums_per_dataset": "sets how many samples are taken of each data set",
    "data_source_type": "mixes data sets as they come, or by index",
    "load_indices_npz_path": "names the file from which the order of mixed data is read",
    "save_indices_npz_path": "names the file to which the order of mixed data is written",
    "samples_num": "bounds the number of samples",
    "skip_num": "skips the first samples",
    "file_limit": "sets how many files are read at once",
    "is_align": "fills samples up to max_length",
    "max_length": "cuts samples at a length",
    "text_col": "names the column of texts",
    "dataset_name": "names a known form of the data (alpaca, tnews, wikitext, …)",
    "file_format": "chooses files by their ending",
    "read_function": "names the code that reads a file",
    "map_function": "names the code that makes a sample of a row",
    "map_function_kwargs": "sets options of the code that makes a sample of a row",
    "tokenizer": "sets the tokenizer of the data",
    "annotation_file": "names the file of conversations about images",
    "extra_kwargs": "sets further options of the loader of images",
    "origin_columns": "names the columns of questions and answers",
    "phase": "chooses the training or the evaluation part",
    "num_shards": "sets into how many parts samples are split over devices",
    "shard_id": "sets which part of the samples this device reads",
    "packing": "chooses how instruction samples are packed",
    "adaptor_config": "sets how packed samples are made",
    "return_in_generator": "returns samples one by one",
    "path_prefix": "names the token files",
    "mutilmodal": "reads token files that hold modes beside tokens",
    "config": "holds the settings of the token files",
    "config.train_data_path": "names the token files that train",
    "config.valid_data_path": "names the token files that validate",
    "config.test_data_path": "names the token files that test",
    "config.add_extra_token_to_sequence": "reads one token more than the length, for the labels",
    "config.drop_last_partial_validation_sequence": "drops the last short sequence of validation",
}
_DATASET = {
    "data_collator": "names the code that makes a batch of samples",
    "dataset": "names the data set whose samples are read",
    "sampler": "names the code that draws samples",
    "tokenizer": "sets the tokenizer of the data set",
    "ignore_pad_token_for_loss": "leaves padding out of the loss",
    "max_source_length": "cuts questions at a length",
    "max_target_length": "cuts answers at a length",
    "phase": "chooses the training or the evaluation part",
    "version": "chooses how question and answer are joined (1, 2)",
}
_BIAS = {
    "balance_via_topk_bias": "moves the experts' bias after every step",
    "topk_bias_update_rate": "sets the step of the experts' bias",
    "expert_num": "sets the number of experts whose bias is moved",
    "micro_batch_num": "sets the micro-batches over which the experts' load is summed",
}
_SCALE = {
    "loss_scale_value": "sets the first loss scale",
    "scale_factor": "sets the factor of the loss scale's changes",
    "scale_window": "sets after how many steps without overflow the loss scale grows",
}
PHRASES: Mapping[str, str] = {
    **_of("optimizer", _OPTIMIZER),
    **_of("lr_schedule", _SCHEDULE),
    **_of("model.model_config", _MODEL),
    **_of("train_dataset.data_loader", _LOADER),
    **_of("train_dataset", _DATASET),
    **_of("callbacks.TopkBiasBalanceCallback", _BIAS),
    **_of("runner_wrapper", _SCALE),
}
SINGLE: tuple[NativeOnlyArg, ...] = (
    *single_rows(PHRASES),
    row(
        "hub_token",
        no_field="It is a secret: a job only refers to the variable that holds it "
        "(backend.args.hub_token=${HUB_TOKEN}).",
        source="mindformers/trainer/training_args.py:1181 @1.6.0",
    ),
    row(
        below_model(
            "context_parallel_algo context_parallel_size expert_model_parallel_size expert_tensor_parallel_size "
            "pipeline_model_parallel_size sequence_parallel tensor_model_parallel_size ulysses_degree_in_cp"
        ),
        no_field="The trainer fills it in from parallel_config and moe_config, whose keys have the fields.",
        source="mindformers/parallel_core/transformer_config_utils.py:209 @2.1.0",
    ),
    row(
        "callbacks.MFLossMonitor.calculate_per_token_loss callbacks.MFLossMonitor.global_batch_size "
        "callbacks.CheckpointMonitor.global_batch_size callbacks.TrainingStateMonitor.global_batch_size "
        "callbacks.TrainingStateMonitor.tensor_model_parallel_size callbacks.ColdHotExpertMonitor.ffn_hidden_size "
        "callbacks.ColdHotExpertMonitor.hidden_size callbacks.MoEDropRateCallback.num_layers",
        no_field="A callback computes figures for its log with it; the setting of training is another key.",
        source="mindformers/core/callback/callback.py:383 @2.1.0; mindformers/core/callback/callback.py:2621 @2.1.0; "
        "mindformers/core/callback/callback.py:3030 @2.1.0",
    ),
    row(
        "model.model_config.calculate_per_token_loss runner_wrapper.calculate_per_token_loss "
        "train_dataset.batch_size train_dataset.profile",
        no_field="The trainer writes the value of another key over it (calculate_per_token_loss, "
        "runner_config.batch_size, profile).",
        source="mindformers/trainer/base_trainer.py:356 @2.1.0; mindformers/dataset/utils.py:28 @2.1.0",
    ),
    row(
        below_model(
            "bias_activation_fusion embed_layernorm fp16_lm_cross_entropy layer_types masked_softmax_fusion "
            "moe_enable_deepep moe_expert_capacity_factor moe_input_jitter_eps moe_pad_expert_input_to_capacity "
            "moe_per_layer_logging moe_router_fusion moe_token_drop_policy moe_z_loss_coeff partial_rotary_factor "
            "sliding_window untie_embeddings_and_output_weights init_model_with_meta_device"
        ),
        no_field="The converter takes the key, and no module that trains reads it.",
        source="mindformers/parallel_core/transformer_config_utils.py:324 @1.6.0; "
        "mindformers/parallel_core/transformer_config_utils.py:366 @2.1.0",
    ),
    row(
        below_model("moe_router_load_balancing_type"),
        no_field="In 1.6.0 no module that trains reads it (aux_loss_types does its work); in 2.1.0 it has the field "
        "(moe.load_balancing_type).",
        source="mindformers/parallel_core/transformer_config_utils.py:366 @1.6.0; "
        "mindformers/parallel_core/training_graph/transformer/moe/router.py:197 @2.1.0",
    ),
    row(
        "profile_level",
        no_field="Only the measurement of generated text reads it; what a profile of training collects, profiler_level "
        "sets (profiler.level).",
        source="mindformers/tools/debug_info.py:40 @2.1.0; mindformers/trainer/trainer.py:1156 @2.1.0",
    ),
    row(
        below_model("beta_fast beta_slow mscale mscale_all_dim rotary_seq_len_interpolation_factor use_rope_scaling"),
        no_field="A file may set it beside model.model_config.rope_scaling, which has the fields "
        "(model.rope_scaling.*); it keeps it.",
        source="mindformers/parallel_core/training_graph/base_models/common/embeddings/rope_utils.py:34-57 @2.1.0",
    ),
    row(
        below_model("rotary_percent"),
        no_field="It shrinks the rotary part of latent attention only, whose size model.qk_rope_head_dim sets.",
        source="mindformers/parallel_core/training_graph/base_models/gpt/gpt_model.py:303 @2.1.0",
    ),
    row(
        "trust_remote_code",
        no_field="It belongs to finding and reading files of a model, not to the model.",
        source="mindformers/parallel_core/transformer_config_utils.py:187 @2.1.0; "
        "mindformers/trainer/base_trainer.py:1813 @2.1.0",
    ),
    row(
        "train_dataset.data_loader.max_length train_dataset.data_loader.packing train_dataset.dataset "
        "runner_config.num_classes top_k optimizer.loss_scale",
        no_field="It belongs to one of MindFormers' own data sets or classifiers, with another meaning than the "
        "argument of that name.",
        source="mindformers/dataset/dataloader/sft_dataloader.py:46 @2.1.0; mindformers/dataset/general_dataset.py:45 "
        "@2.1.0; mindformers/dataset/utils.py:35 @2.1.0; mindformers/trainer/base_trainer.py:1864 @2.1.0; "
        "mindformers/core/optim/came.py:287 @2.1.0; mindformers/dataset/handler/base_handler.py:55 @1.6.0",
    ),
    row(
        "train_dataset.data_loader.config.train_data_path train_dataset.data_loader.config.valid_data_path "
        "train_dataset.data_loader.config.test_data_path",
        no_field="A file may name the data of each split in place of config.data_path, which has the field "
        "(data.paths); it keeps them.",
        source="mindformers/dataset/dataloader/blended_megatron_dataloader.py:199 @2.1.0",
    ),
    row(
        below_model("moe_apply_probs_on_input disable_bf16_reduced_precision_matmul"),
        no_field="MindFormers declares it, and no line of its static graph reads it.",
        source="mindformers/parallel_core/transformer_config.py:369 @1.6.0; "
        "mindformers/parallel_core/transformer_config.py:161 @1.6.0",
    ),
)
