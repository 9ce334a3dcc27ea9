"""Programs that measure speed, memory and quality; ``python -m tests.benchmarks`` lists them."""
