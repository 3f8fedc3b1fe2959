"""Files and folders: atomic writes, records, fingerprints, folders that a run can resume from."""
