"""Where a lock can live: one module per mechanism, all keeping the promises of `base`."""
