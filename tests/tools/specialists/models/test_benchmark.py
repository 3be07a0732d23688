"""The benchmark of specialists: concurrent calls are batches, and their results are those of each call alone."""

from tests.test_benchmarks import load


def test_batched_calls_have_the_results_of_single_ones():
    report = load("specialists").main(None, 2, 40)
    assert report["calls"] == 32
    assert report["largest_difference"] <= 1e-5
    assert report["mean_batch"] > 1
