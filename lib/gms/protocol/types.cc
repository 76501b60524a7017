#include "gms/protocol/types.h"

#include <array>
#include <utility>

#include "base/hex.h"

namespace fo::gms {
namespace {

constexpr std::array<std::pair<LockType, std::string_view>, 4> kLockTypes{{
    {LockType::kRw, "rw"},
    {LockType::kRo, "ro"},
    {LockType::kRwOrRo, "rw_or_ro"},
    {LockType::kRwDataOrRw, "rw_data_or_rw"},
}};

constexpr std::array<std::pair<Grant, std::string_view>, 3> kGrants{{
    {Grant::kRw, "rw"},
    {Grant::kRo, "ro"},
    {Grant::kRwData, "rw_data"},
}};

template <typename Table, typename Value>
std::string_view name_in(const Table& table, Value value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "?";
}

template <typename Value, typename Table>
std::optional<Value> value_in(const Table& table, std::string_view text) {
  for (const auto& [value, name] : table) {
    if (name == text) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(LockType type) { return name_in(kLockTypes, type); }
std::string_view to_string(Grant grant) { return name_in(kGrants, grant); }

std::string_view to_string(ServerState state) {
  constexpr std::array<std::string_view, 5> kNames{"EMPTY", "LAYOUT_COMMITTED", "COMMITTED", "RO",
                                                   "RW"};
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<LockType> parse_lock_type(std::string_view text) {
  return value_in<LockType>(kLockTypes, text);
}

std::optional<Grant> parse_grant(std::string_view text) { return value_in<Grant>(kGrants, text); }

bool is_layout_hash(std::string_view text) { return text.size() == 64 && base::is_hex(text); }

}  // namespace fo::gms
