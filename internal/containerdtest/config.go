package containerdtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// writeConfig writes the configurations of containerd and of CNI below o.Dir.
func writeConfig(o Options) error {
	for _, d := range []string{"net.d", "opt", "cni", "cdi", "tmp", "runc"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, d), 0o711); err != nil {
			return err
		}
	}
	runc, err := findProgram(o.BinDir, "runc")
	if err != nil {
		return err
	}
	bridge, err := findProgram(o.BinDir, "bridge")
	if err != nil {
		return err
	}
	config := fmt.Sprintf(containerdConfig, o.Dir, sampleimage.Pause, !mayLowerOOMScore(), runc, filepath.Dir(bridge))
	if err := os.WriteFile(filepath.Join(o.Dir, "config.toml"), []byte(config), 0o600); err != nil {
		return err
	}
	for registry, url := range o.Mirrors {
		dir := filepath.Join(o.Dir, "certs.d", registry)
		hosts := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", url)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o600)); err != nil {
			return err
		}
	}
	more := ""
	if NoHostPorts() == nil {
		more = portmap
	}
	network := fmt.Sprintf(networkConfig, o.bridge(), o.Dir, o.Subnet, more)
	return os.WriteFile(filepath.Join(o.Dir, "net.d", "10-nodewright.conflist"), []byte(network), 0o600)
}

// containerdConfig is a format string for containerd's configuration. Its arguments are
// the directory, the sandbox image, restrict_oom_score_adj, the path of runc and the
// directory of CNI plugins, beside which /opt/cni/bin is one. Network namespaces and runc's state are also below the
// directory. The handler "bare" runs privileged containers without host devices. The
// handler "test-handler" is runc under the name that e2e/conformance requires.
const containerdConfig = `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
temp = "%[1]s/tmp"
imports = []

[grpc]
  address = "%[1]s/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "%[1]s/certs.d"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "%[2]s"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = %[3]t
  netns_mounts_under_state_dir = true
  enable_cdi = true
  cdi_spec_dirs = ["%[1]s/cdi"]
  disable_hugetlb_controller = false # by default containerd ignores limits of huge pages
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "%[4]s"
      Root = "%[1]s/runc"
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler.options]
      BinaryName = "%[4]s"
      Root = "%[1]s/runc"
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.bare]
    runtime_type = "io.containerd.runc.v2"
    privileged_without_host_devices = true
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.bare.options]
      BinaryName = "%[4]s"
      Root = "%[1]s/runc"
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["%[5]s", "/opt/cni/bin"]
    conf_dir = "%[1]s/net.d"
[plugins.'io.containerd.internal.v1.opt']
  path = "%[1]s/opt"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
`

// networkConfig is a format string for the CNI configuration. Its arguments are the
// bridge's name, the directory, the subnet and more plugins.
const networkConfig = `{"cniVersion":"1.0.0","name":"%[1]s","plugins":[
 {"type":"bridge","bridge":"%[1]s","isGateway":true,"ipMasq":false,"ipam":
  {"type":"host-local","dataDir":"%[2]s/cni","ranges":[[{"subnet":"%[3]s"}]],"routes":[{"dst":"0.0.0.0/0"}]}}%[4]s]}
`

// portmap is the plugin for host ports.
const portmap = `,{"type":"portmap","capabilities":{"portMappings":true}}`

// NoHostPorts returns an error if pods cannot have host ports on this machine, and nil
// if they can. The CNI plugin portmap needs iptables or nft, and a kernel with NAT.
func NoHostPorts() error {
	err := errors.New("neither iptables nor nft is installed")
	for _, list := range [][]string{{"iptables", "-w", "-t", "nat", "-S"}, {"nft", "list", "tables"}} {
		if _, missing := exec.LookPath(list[0]); missing != nil {
			continue
		}
		// The plugin uses the first installed program, even if it does not work.
		out, err := exec.Command(list[0], list[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(list, " "), err, bytes.TrimSpace(out))
		}
		return nil
	}
	return err
}

// mayLowerOOMScore reports whether this process has CAP_SYS_RESOURCE, bit 24
// (capabilities(7)). Without it runc cannot set a negative oom_score_adj.
func mayLowerOOMScore() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && caps>>24&1 == 1
		}
	}
	return false
}
