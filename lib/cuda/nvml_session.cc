#include "cuda/nvml_session.h"

#include <dlfcn.h>

#include <utility>

#include "base/error.h"

namespace fo::cuda {

NvmlSession::NvmlSession(const std::string& library, std::string what)
    : what_(std::move(what)), library_(library) {
  handle_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* const reason = ::dlerror();
    fail(reason != nullptr ? reason : library);
  }
  const auto init = find<int (*)()>("nvmlInit_v2");
  error_string_ = find<const char* (*)(int)>("nvmlErrorString");
  check(init());
}

void* NvmlSession::symbol(const char* name) const { return ::dlsym(handle_, name); }

void* NvmlSession::needed_symbol(const char* name) const {
  void* const found = symbol(name);
  if (found == nullptr) fail(std::string("no ") + name + " in " + library_);
  return found;
}

std::string NvmlSession::text_of(int result) const {
  const char* const text = error_string_(result);
  return text != nullptr ? text : "error " + std::to_string(result);
}

void NvmlSession::check(int result) const {
  if (result != kNvmlSuccess) fail(text_of(result));
}

void NvmlSession::fail(const std::string& reason) const {
  throw base::Error(base::ExitStatus::kUnavailable, what_ + ": " + reason);
}

}  // namespace fo::cuda
