// The node daemon.
#include <cstdio>

int main() {
  std::puts("sluice-node " SLUICE_VERSION);
  return 0;
}
