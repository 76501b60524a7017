// fo-podgen: generates the manifests of a failover pod from a DynamoGraphDeployment.
#include "options.h"

int main(int argc, char** argv) {
  using namespace fo;
  fo_podgen::Options options;
  const cli::Tool tool{.name = "fo-podgen",
                       .summary = "Turn DynamoGraphDeployments into failover pods.",
                       .version = FO_VERSION};
  return cli::run(argc, argv, tool, options, fo_podgen::declare,
                  [&] { return options.run(options); });
}
