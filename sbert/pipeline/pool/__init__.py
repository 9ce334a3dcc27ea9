"""Pools: worker processes that share one model, each on a device of its own. ``model.pool`` makes one."""
