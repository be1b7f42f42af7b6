"""What single keys of MindFormers do, where its own tables have one row for all of their kind.

From mindformers/core/{optim,lr,callback}, dataset/ and parallel_core/transformer_config.py at 2.1.0, models/ at 1.6.0.
"""

from collections.abc import Mapping


def _of(section: str, said: Mapping[str, str]) -> dict[str, str]:
    return {f"{section}.{name}": phrase for name, phrase in said.items()}


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
    "dsa_indexer_types": "says which layers run an indexer of sparse attention of their own",
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
    "expert_num": "says the number of experts whose bias is moved",
    "micro_batch_num": "says the micro-batches over which the experts' load is summed",
}
_SCALE = {
    "loss_scale_value": "sets the first loss scale",
    "scale_factor": "sets the factor of the loss scale's changes",
    "scale_window": "sets after how many sound steps the loss scale grows",
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


def phrases() -> Mapping[str, str]:
    """Return a phrase for each key, as `Own.does`."""
    return PHRASES
