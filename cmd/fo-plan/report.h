// The answers of fo-plan as JSON, one object each.
#pragma once

#include <string>
#include <vector>

#include "plan/figures.h"
#include "sweep.h"

namespace fo::fo_plan {

/// {"version","verb","formula","inputs","results","met"}; the keys of "inputs" are option names, so
/// that --config reads them. A missing number and an unknown "met" are null.
std::string to_json(const Verb& verb, const Inputs& inputs, const Answer& answer);

/// The same with "rows" in place of "results" and "met". Each row has the value of the swept
/// parameter, the results and "met".
std::string to_json(const Verb& verb, const Inputs& inputs, const Sweep& sweep,
                    const std::vector<Row>& rows);

/// {"version","verb","figures":[{"claim","right","value","reason"}]}
std::string to_json(const std::vector<plan::Figure>& figures);

}  // namespace fo::fo_plan
