// See driver.h.
#include "simcuda/driver.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace fo::simcuda {
namespace {

/// FNV-1a with splitmix64's finisher.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

/// Equal in every process for one folder and device, and different for all others.
Uuid make_uuid(const std::string& dir, int ordinal) {
  Uuid uuid{};
  for (std::size_t half = 0; half < 2; ++half) {
    std::uint64_t bits = hash(dir + '\0' + std::to_string(ordinal) + '\0' + std::to_string(half));
    for (std::size_t i = 0; i < 8; ++i, bits >>= 8) {
      uuid.bytes[half * 8 + i] = static_cast<char>(bits & 0xff);
    }
  }
  return uuid;
}

/// Opens the devices' folder; creates it if it is missing.
std::filesystem::path open_dir(const Settings& settings) {
  const auto& dir = settings.dir;
  const auto refuse = [&](const std::string& reason) {
    throw SettingsError("GMS_SIM_DIR='" + dir.native() + "': " + reason);
  };
  if (::mkdir(dir.c_str(), 0700) < 0 && errno != EEXIST) refuse(std::strerror(errno));
  struct stat status {};
  if (::lstat(dir.c_str(), &status) < 0) refuse(std::strerror(errno));
  // Any user can create a folder in /dev/shm. A folder that was named explicitly is not checked.
  const bool own = S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
  if (settings.dir_is_default && !own) refuse("not a folder of this user");
  std::error_code error;
  auto canonical = std::filesystem::canonical(dir, error);
  if (error) refuse(error.message());
  return canonical;
}

void* address_of(DevicePtr address) { return reinterpret_cast<void*>(address); }

}  // namespace

std::string text_of(const Uuid& uuid) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

// Not thread_local: leak checkers report thread-local storage of libraries loaded at run time, so
// every program that uses this one would fail under a leak checker.
std::vector<Context>& thread_contexts() {
  using Contexts = std::vector<Context>;
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    const int err = ::pthread_key_create(
        &made, [](void* contexts) { delete static_cast<Contexts*>(contexts); });
    if (err != 0) throw failure_of_errno(err);
    return made;
  }();
  if (void* contexts = ::pthread_getspecific(key)) return *static_cast<Contexts*>(contexts);
  auto contexts = std::make_unique<Contexts>();
  if (const int err = ::pthread_setspecific(key, contexts.get()); err != 0) {
    throw failure_of_errno(err);
  }
  return *contexts.release();
}

Driver::Driver(const Settings& settings)
    : granularity_(settings.granularity),
      context_size_((settings.context_size + granularity_ - 1) / granularity_ * granularity_),
      quirks_(settings.quirks),
      space_(settings.granularity) {
  const auto dir = open_dir(settings);
  whole_gpu_ = make_uuid(dir.native(), settings.devices);
  std::vector<Uuid> uuids;
  std::vector<std::string> names;
  std::vector<int> visible;
  for (int ordinal = 0; ordinal < settings.devices; ++ordinal) {
    uuids.push_back(make_uuid(dir.native(), ordinal));
    names.push_back(text_of(uuids.back()));
    visible.push_back(ordinal);
  }
  if (settings.visible_devices) visible = visible_devices(*settings.visible_devices, names);
  require(!visible.empty(), Result::kNoDevice);
  for (const int ordinal : visible) {
    devices_.push_back(
        {uuids[static_cast<std::size_t>(ordinal)],
         Store(dir / ("device-" + std::to_string(ordinal)), settings.vram, settings.free_delay),
         {}});
  }
}

Driver::SimDevice& Driver::at(Device device) {
  require(device >= 0 && device < device_count(), Result::kInvalidDevice);
  return devices_[static_cast<std::size_t>(device)];
}

const Driver::SimDevice& Driver::at(Device device) const {
  return const_cast<Driver*>(this)->at(device);
}

Device Driver::device(int ordinal) const {
  at(ordinal);
  return ordinal;
}

Uuid Driver::uuid(Device device) const { return at(device).uuid; }

Uuid Driver::old_uuid(Device device) const {
  require(!quirks_.no_uuid, Result::kNotSupported);
  return quirks_.mig ? whole_gpu_ : uuid(device);
}

int Driver::attribute(DeviceAttribute attribute, Device device) const {
  at(device);
  switch (attribute) {
    case DeviceAttribute::kVirtualMemoryManagementSupported:
    case DeviceAttribute::kHandleTypePosixFileDescriptorSupported:
      return 1;
  }
  return 0;
}

std::uint64_t Driver::total_memory(Device device) const { return at(device).store.capacity(); }

Context Driver::retain_primary_context(Device device) {
  SimDevice& sim = at(device);
  if (sim.context.references == 0) {
    if (context_size_ > 0) sim.context.memory = sim.store.create(context_size_);
    sim.context.broken = Result::kSuccess;
    sim.context.late = Result::kSuccess;
  }
  ++sim.context.references;
  return reinterpret_cast<Context>(&sim.context);
}

void Driver::release_primary_context(Device device) {
  SimDevice& sim = at(device);
  require(sim.context.references > 0, Result::kInvalidContext);
  if (--sim.context.references == 0 && context_size_ > 0) {
    sim.store.release(std::move(sim.context.memory));
  }
}

Device Driver::device_of(Context context) const {
  const auto found = std::find_if(devices_.begin(), devices_.end(), [&](const SimDevice& sim) {
    return reinterpret_cast<const void*>(&sim.context) == context;
  });
  require(found != devices_.end(), Result::kInvalidContext);
  return static_cast<Device>(found - devices_.begin());
}

Device Driver::current_device() const {
  require(!thread_contexts().empty(), Result::kInvalidContext);
  const Device device = device_of(thread_contexts().back());
  const PrimaryContext& context = at(device).context;
  require(context.references > 0, Result::kContextIsDestroyed);
  require(context.broken == Result::kSuccess, context.broken);
  return device;
}

void Driver::require_unbroken() const {
  if (!quirks_.late_copy_errors || thread_contexts().empty()) return;
  const PrimaryContext& context = at(device_of(thread_contexts().back())).context;
  require(context.references == 0 || context.broken == Result::kSuccess, context.broken);
}

void Driver::synchronize() { synchronize(at(current_device()).context); }

void Driver::synchronize(Stream stream) {
  require_stream(stream);
  // The two predefined streams belong to the current context.
  const auto found = streams_.find(stream);
  if (found != streams_.end()) return synchronize(at(found->second).context);
  if (!thread_contexts().empty()) synchronize();
}

void Driver::synchronize(PrimaryContext& context) {
  if (context.late != Result::kSuccess) {
    context.broken = std::exchange(context.late, Result::kSuccess);
  }
  require(context.broken == Result::kSuccess, context.broken);
}

Driver::MemoryInfo Driver::memory_info(Device device) {
  Store& store = at(device).store;
  const std::uint64_t total = store.capacity();
  return {total - std::min(total, store.used()), total};
}

void Driver::check_prop(const AllocationProp& prop) const {
  require(prop.type == AllocationType::kPinned);
  require(prop.location.type == LocationType::kDevice, Result::kNotSupported);
  at(prop.location.id);
  require(prop.requested_handle_types == HandleType::kNone ||
              prop.requested_handle_types == HandleType::kPosixFileDescriptor,
          Result::kNotSupported);
  require(prop.alloc_flags.compression_type == 0, Result::kNotSupported);
}

AllocationHandle Driver::create(std::uint64_t size, const AllocationProp& prop) {
  check_prop(prop);
  require(size > 0 && size % granularity_ == 0);
  const Device device = prop.location.id;
  return add_handle({device, at(device).store.create(size), prop.requested_handle_types, 1});
}

AllocationHandle Driver::add_handle(Handle handle) {
  handles_[++last_handle_] = std::move(handle);
  return last_handle_;
}

// On a real driver an invalid handle is undefined behaviour; here it is an error, so that tests
// find it.
const Driver::Handle& Driver::find_handle(AllocationHandle handle) const {
  const auto found = handles_.find(handle);
  require(found != handles_.end(), Result::kInvalidHandle);
  return found->second;
}

void Driver::release(AllocationHandle handle) {
  const auto found = handles_.find(handle);
  require(found != handles_.end(), Result::kInvalidHandle);
  if (--found->second.references > 0) return;
  Handle gone = std::move(found->second);
  handles_.erase(found);
  if (space_.maps(gone.memory.id)) return;  // so it is not the last reference
  at(gone.device).store.release(std::move(gone.memory));
}

int Driver::export_fd(AllocationHandle handle, HandleType type) {
  const Handle& found = find_handle(handle);
  require(type == HandleType::kPosixFileDescriptor, Result::kNotSupported);
  require(found.exportable == type);
  // Not invalid value, which is for misuse: the handle and its type are valid.
  require(!quirks_.no_reexport || !found.imported, Result::kNotSupported);
  return found.memory.fd.duplicate().release();
}

AllocationHandle Driver::import_fd(int fd) {
  if (quirks_.import_needs_context) current_device();
  for (Device device = 0; device < device_count(); ++device) {
    if (auto memory = at(device).store.adopt(fd)) {
      return add_handle({device, std::move(*memory), HandleType::kPosixFileDescriptor, 1, true});
    }
  }
  throw Failure{Result::kInvalidValue};
}

AllocationHandle Driver::retain(DevicePtr address) {
  const Backing& backing = space_.find(address).mapping->backing;
  if (const auto found = handles_.find(backing.handle); found != handles_.end()) {
    ++found->second.references;
  } else {
    // Released meanwhile: the same value becomes valid again.
    handles_[backing.handle] = {backing.device, at(backing.device).store.reopen(backing.file),
                                backing.exportable, 1, backing.imported};
  }
  return backing.handle;
}

AllocationProp Driver::properties(AllocationHandle handle) const {
  const Handle& found = find_handle(handle);
  AllocationProp prop{};
  prop.type = AllocationType::kPinned;
  prop.requested_handle_types = found.exportable;
  prop.location = {LocationType::kDevice, found.device};
  return prop;
}

DevicePtr Driver::reserve(std::uint64_t size, std::uint64_t alignment, DevicePtr hint) {
  return space_.reserve(size, alignment, hint);
}

void Driver::free_range(DevicePtr address, std::uint64_t size) { space_.free(address, size); }

void Driver::require_context_to_map() const {
  if (quirks_.map_needs_context) current_device();
}

void Driver::map(DevicePtr address, std::uint64_t size, std::uint64_t offset,
                 AllocationHandle handle) {
  require_context_to_map();
  require(offset == 0, Result::kNotSupported);
  const Handle& found = find_handle(handle);
  require(size <= found.memory.size);
  space_.map(address, size, found.memory.fd,
             {found.device, found.memory.id, handle, found.exportable, found.imported});
}

void Driver::unmap(DevicePtr address, std::uint64_t size) {
  require_context_to_map();
  for (const Backing& backing : space_.unmap(address, size)) {
    if (!handles_.contains(backing.handle)) at(backing.device).store.reap(backing.file);
  }
}

void Driver::set_access(DevicePtr address, std::uint64_t size, const AccessDesc* desc,
                        std::size_t count) {
  require_context_to_map();
  for (std::size_t i = 0; i < count; ++i) {
    require(desc[i].location.type == LocationType::kDevice, Result::kNotSupported);
    at(desc[i].location.id);
  }
  for (std::size_t i = 0; i < count; ++i) {
    space_.set_access(address, size, desc[i].location.id, desc[i].flags);
  }
}

AccessFlags Driver::access(const Location& location, DevicePtr address) const {
  require(location.type == LocationType::kDevice, Result::kNotSupported);
  at(location.id);
  const auto& access = space_.find(address).mapping->access;
  const auto found = access.find(location.id);
  return found == access.end() ? AccessFlags::kNone : found->second;
}

void Driver::check_readable(DevicePtr address, std::uint64_t size) {
  PrimaryContext& context = at(current_device()).context;
  try {
    space_.check_access(address, size, false);
  } catch (const Failure& failure) {
    if (failure.result == Result::kIllegalAddress) context.broken = failure.result;
    throw;
  }
}

bool Driver::check_writable(DevicePtr address, std::uint64_t size) {
  PrimaryContext& context = at(current_device()).context;
  try {
    space_.check_access(address, size, true);
  } catch (const Failure& failure) {
    if (failure.result != Result::kIllegalAddress) throw;
    if (!quirks_.late_copy_errors) context.broken = failure.result;
    fail_copy(failure.result);
  }
  return context.late == Result::kSuccess;
}

void Driver::fail_copy(Result result) {
  if (!quirks_.late_copy_errors) throw Failure{result};
  PrimaryContext& context = at(current_device()).context;
  if (context.late == Result::kSuccess) context.late = result;
}

void* Driver::allocate_host(std::uint64_t size) {
  current_device();
  require(size > 0);
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw failure_of_errno(errno);
  host_[reinterpret_cast<DevicePtr>(address)] = size;
  return address;
}

void Driver::free_host(void* address) {
  current_device();
  const auto found = host_.find(reinterpret_cast<DevicePtr>(address));
  require(found != host_.end());
  ::munmap(address_of(found->first), found->second);
  host_.erase(found);
}

Stream Driver::create_stream() {
  const Device device = current_device();
  const auto stream = reinterpret_cast<Stream>(++last_stream_);
  streams_.emplace(stream, device);
  return stream;
}

void Driver::destroy_stream(Stream stream) {
  require(streams_.erase(stream) == 1, Result::kInvalidHandle);
}

void Driver::require_stream(Stream stream) const {
  const auto value = reinterpret_cast<std::uintptr_t>(stream);
  require(value <= 2 || streams_.contains(stream), Result::kInvalidHandle);
}

}  // namespace fo::simcuda
