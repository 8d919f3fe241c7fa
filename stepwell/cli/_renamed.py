"""Flags of the published script in the words of `stepwell train`."""

RENAMED = {
    "--epoch": "--training descent --steps",
    "--lr": "--training descent --rate",
    "--icl": "--task mixture --in-context",
    "--trainset_size": "--objective moments --sequences",
    "--testset_size": "--test-sequences",
    "--white_cov": "--spectrum white",
    "--vary_len": "--context with several lengths",
    "--seq_len": "--context, which does not count the query and is one less",
    "--in_dim": "--dim",
    "--out_dim": "--outputs",
    "--softmax": "--activation softmax",
    "--KQ_dim": "--rank",
    "--head_num": "--heads",
    "--init": "--scale",
    "--track_value": "--value-weights",
}
