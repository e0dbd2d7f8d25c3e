//! Reading the small files that users write.

use std::path::Path;

use crate::context_files::{MAX_BYTES, read_bounded};

/// The whole text of a file: UTF-8 repaired, no byte order mark.
///
/// # Errors
/// When it cannot be read or is larger than [`MAX_BYTES`]: a part of instructions may say the opposite of the whole. The
/// text names the file.
pub(super) fn read(path: &Path) -> Result<String, String> {
    // Asked before opening: to open a named pipe would wait for its writer.
    let metadata = path.metadata().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if !metadata.is_file() {
        return Err(format!("cannot read {}: it is no regular file", path.display()));
    }
    let (text, whole) =
        read_bounded(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if !whole {
        return Err(format!("{} is larger than {} KiB; shorten it", path.display(), MAX_BYTES >> 10));
    }
    Ok(text)
}
