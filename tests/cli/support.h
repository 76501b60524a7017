// What the tests of this library share.
#pragma once

#include "support/environment.h"
#include "support/failure.h"

namespace fo::cli::test {

using fo::test::Failure;
using fo::test::failure_of;
using fo::test::ScopedVariable;

}  // namespace fo::cli::test
