package network_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/network/cni"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// A machine is this test binary once more, as the first process of a machine
// of its own in small: processes, network and mounts are its, and end with it.
// The job that it does is registered with newJob, and told what to do by JSON.

// Environment of a machine, and of other processes of this binary.
const jobArgs = "NODEWRIGHT_NETWORK_JOB_ARGS"

// newJob registers what a process of this binary may do in place of tests.
func newJob[A any](name string, do func(A) error) string {
	network.Jobs[name] = func() int {
		var a A
		err := json.Unmarshal([]byte(os.Getenv(jobArgs)), &a)
		if err == nil {
			err = do(a)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	return name
}

// process makes a command that does a job.
func process(job string, args any) (*exec.Cmd, *bytes.Buffer, error) {
	b, err := json.Marshal(args)
	if err != nil {
		return nil, nil, err
	}
	var said bytes.Buffer
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), network.JobVar+"="+job, jobArgs+"="+string(b))
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, &said, nil
}

// onMachine does a job on a machine of its own, and returns what that printed.
func onMachine(t testing.TB, job string, args any) []byte {
	t.Helper()
	cmd, said, err := process(job, args)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", job, err, said)
	}
	return out.Bytes()
}

// bootUp makes what a machine has at its start. The directory disk stays where it
// is, be it below what is in memory.
func bootUp(disk string) error {
	at, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer at.Close()
	err = errors.Join(unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""), unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	if err == nil && strings.HasPrefix(disk, "/run/") {
		err = errors.Join(os.MkdirAll(disk, 0o700), unix.Mount(fmt.Sprint("/proc/self/fd/", at.Fd()), disk, "", unix.MS_BIND, ""))
	}
	if err == nil {
		hiddenMounts, err = netnsMounts()
	}
	return errors.Join(err, runs("ip", "link", "set", "lo", "up"))
}

// hiddenMounts are those of the machine that this one is on, below this one's.
var hiddenMounts []string

// netnsMounts lists the mounts of network namespaces.
func netnsMounts() (all []string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, " /run/netns/") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all, err
}

func runs(args ...string) error {
	_, err := prints(args...)
	return err
}

func prints(args ...string) (string, error) {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// publicPlugins are those of containernetworking/plugins that are run here.
var publicPlugins = []string{"bridge", "host-local", "portmap", "loopback"}

// needMachine skips a test where no machine can be made, or fails with CI=true:
// it takes root and the programs that pods' networks are looked at with. It
// returns where the public plugins are, if they are asked for.
func needMachine(t testing.TB, plugins bool) (dir string) {
	t.Helper()
	plugintest.RequireMounts(t)
	give := t.Skipf
	if os.Getenv("CI") == "true" {
		give = t.Fatalf
	}
	for _, tool := range []string{"ip", "nft", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			give("missing: %v", err)
		}
	}
	if !plugins {
		return ""
	}
	built, err := filepath.Abs("../build/bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range publicPlugins {
		if info, err := os.Stat(filepath.Join(built, p)); err != nil || !info.Mode().IsRegular() {
			give("plugin %s is not in %s: run make tools", p, built)
		}
	}
	return built
}

// site is where an agent has its things: what outlives a boot.
type site struct {
	Kind    string // of the plugin: bridge, or cni over the public ones
	Dir     string
	Plugins string // directory of the public plugins
}

// chain is the usual list of plugins: a bridge, addresses, host ports. Leases
// are in the site, as on a disk.
const chain = `{"cniVersion":"1.0.0","name":"net","plugins":[
	{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,
	 "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.77.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
	{"type":"portmap","capabilities":{"portMappings":true}},
	{"type":"loopback"}]}`

func (s site) path(name string) string { return filepath.Join(s.Dir, name) }

// plugin makes the site's plugin.
func (s site) plugin() (network.Plugin, error) {
	if s.Kind == "bridge" {
		return bridge.New(bridge.Config{StateDir: s.path("bridge"), ResolvConf: []string{}})
	}
	conf := s.path("net.d")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(conf, "10.conflist"), fmt.Appendf(nil, chain, s.path("leases")), 0o600); err != nil {
		return nil, err
	}
	return cni.New(cni.Config{ConfDir: conf, BinDirs: []string{s.Plugins}, CacheDir: s.path("cache"), AddTimeout: slow, DelTimeout: slow, VersionTimeout: slow})
}

// slow is what calls may take here: the chain runs some thirty programs, and an
// emulated machine may run one in two seconds.
const slow = 20 * time.Minute

// network makes the site's network.
func (s site) network(boot string) (*network.Network, error) {
	p, err := s.plugin()
	if err != nil {
		return nil, err
	}
	return network.New(network.Config{
		Plugins: []network.Plugin{p}, StateDir: s.path("state"), BootID: boot,
		SetUpTimeout: slow, TearDownTimeout: slow, CollectTimeout: slow, DiskTimeout: slow,
	})
}
