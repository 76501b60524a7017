// The keys of records in a registry, which are paths: "instances/NAMESPACE/COMPONENT/ENDPOINT/ID",
// "cards/CHECKSUM", "verdicts/ID/WRITER", "weights/MODEL", "routers/ID", "wanted/MODEL".
#pragma once

#include <string>
#include <string_view>

namespace fo::fleet {

/// True for one of the kinds above with the right number of segments, each of which is 1 to 200
/// letters, digits, '.', '_', ':', '%', '-', and does not begin with '.' or '-'.
bool is_key(std::string_view key);

/// `text`, such as the name of a model, as one segment: other bytes become %XX. Throws kUsage if it
/// is empty or too long.
std::string key_segment(std::string_view text);
/// The text of a segment that key_segment() made: each %XX is decoded. A "%" without two hex digits
/// is unchanged.
std::string text_of_segment(std::string_view segment);

/// True for keys of processes, "instances/…" and "routers/…": such a record counts only while the
/// process that keeps it lives. Records of other kinds are persistent: they stay until they are
/// removed.
bool is_ephemeral(std::string_view key);

/// Returns the part after the last '/', such as the id of a process.
std::string last_segment(std::string_view key);

/// The id that the record must contain as "id"; empty if records of its kind have none.
std::string_view id_of(std::string_view key);

}  // namespace fo::fleet
