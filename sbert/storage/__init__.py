"""Files and folders: read whole, written whole or not at all, fetched from the hub; and the locks of processes."""
