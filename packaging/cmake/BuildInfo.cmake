# Writes OUTPUT, the function declared in lib/cli/build_info.h: the commit of SOURCE, the COMPILER
# and the KIND of build. Runs at each build, and does not touch OUTPUT without changes.
execute_process(COMMAND git describe --always --abbrev=12 --dirty --exclude=*
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE status)
set(text "${COMPILER}, ${KIND}")
if(status EQUAL 0 AND commit)
  string(PREPEND text "${commit}, ")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[#include "cli/build_info.h"

namespace fo::cli {

std::string_view build_info() { return "@text@"; }

}  // namespace fo::cli
]])
