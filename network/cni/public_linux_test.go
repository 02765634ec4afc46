package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// public are the plugins of containernetworking/plugins that are run.
var public = []string{"bridge", "host-local", "portmap", "loopback", "ptp", "bandwidth"}

// publicDir is where the public plugins are: what "make tools" builds, or what the
// system has. A test that needs them is skipped where it cannot run, and fails
// with CI=true.
func publicDir(t *testing.T) string {
	t.Helper()
	give := t.Skipf
	if os.Getenv("CI") == "true" {
		give = t.Fatalf
	}
	if os.Geteuid() != 0 {
		give("network namespaces need root")
	}
	for _, tool := range []string{"iptables", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			give("portmap needs iptables: %v", err)
		}
	}
	built, err := filepath.Abs("../../build/bin")
	if err != nil {
		t.Fatal(err)
	}
	missing := ""
	for _, dir := range []string{built, "/opt/cni/bin", "/usr/lib/cni"} {
		all := true
		for _, p := range public {
			if info, err := os.Stat(filepath.Join(dir, p)); err != nil || !info.Mode().IsRegular() {
				all, missing = false, p
			}
		}
		if all {
			return dir
		}
	}
	give("plugin %s is neither in %s nor in the system's directories: run make tools", missing, built)
	return ""
}

// inNamespaces runs a test once more as a process with a network and mounts of
// its own: what plugins do to the host they do there.
func inNamespaces(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv("NODEWRIGHT_CNI_INSIDE") == t.Name() {
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"/run", "/var/lib/cni"} { // locks of iptables, addresses of host-local
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
		}
		run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1h", fmt.Sprint("-test.short=", testing.Short())) //nolint:gosec // this test
	cmd.Env = append(os.Environ(), "NODEWRIGHT_CNI_INSIDE="+t.Name())
	if strings.HasPrefix(os.TempDir(), "/run/") { // which is another one inside
		cmd.Env = append(cmd.Env, "TMPDIR=/tmp")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("inside:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// namespace makes a network namespace with a path, and lo up, as package
// network does.
func namespace(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("/run/netns", name)
	run(t, "ip", "netns", "add", name)
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return path
}

// within calls f on a thread in a network namespace.
func within(netns string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		done <- func() error {
			fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}

// serve answers each connection in a namespace with a word.
func serve(t *testing.T, netns, addr, word string) (end func()) {
	t.Helper()
	var l net.Listener
	err := within(netns, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, word)
			_ = c.Close()
		}
	}()
	return func() { _ = l.Close() }
}

func ask(addr string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	b, err := io.ReadAll(c)
	return string(b), err
}

// slow is what calls of public plugins may take: they run some thirty programs
// for a pod, and an emulated machine may run one in two seconds.
const slow = 20 * time.Minute

// publicRig is a plugin over the public plugins.
func publicRig(t *testing.T, dir, conf string) *rig {
	t.Helper()
	r := newRig(t, true, func(c *Config) {
		c.BinDirs = append(c.BinDirs, dir)
		c.AddTimeout, c.DelTimeout, c.VersionTimeout, c.CheckTimeout = slow, slow, slow, slow
	})
	r.write("10-net.conflist", conf)
	return r
}

func leases(t *testing.T, network string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/var/lib/cni/networks", network))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var ips []string
	for _, e := range entries {
		if net.ParseIP(e.Name()) != nil {
			ips = append(ips, e.Name())
		}
	}
	return ips
}

func TestPublicPlugins(t *testing.T) {
	dir := publicDir(t)
	if !inNamespaces(t) {
		return
	}
	const subnet = `"ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}`
	for _, main := range []string{`{"type":"bridge","bridge":"testbr0","isGateway":true,"ipMasq":true,"hairpinMode":true,` + subnet + `}`, `{"type":"ptp","ipMasq":true,` + subnet + `}`} {
		for _, version := range []string{"0.3.1", "0.4.0", "1.0.0"} {
			if testing.Short() && version != "1.0.0" {
				continue
			}
			network, _, _ := strings.Cut(strings.TrimPrefix(main, `{"type":"`), `"`)
			t.Run(network+version, func(t *testing.T) {
				name := network + strings.ReplaceAll(version, ".", "")
				r := publicRig(t, dir, oneConf(name, version, main, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"bandwidth","capabilities":{"bandwidth":true}}`))
				testPublic(t, r, name, version)
			})
		}
	}
}

func testPublic(t *testing.T, r *rig, name, version string) {
	kept := map[string]network.Kept{}
	for i, id := range []string{"p1" + name, "p2" + name} {
		ns := namespace(t, id)
		a := pod(id)
		a.Ports = []network.Port{{Protocol: "tcp", HostPort: uint16(8081 + i), ContainerPort: 80}, {Protocol: "udp", HostPort: uint16(8081 + i), ContainerPort: 80}}
		a.Ingress, a.Egress = 10_000_000, 10_000_000
		saved := r.plan(a)
		res, err := r.p.SetUp(t.Context(), a, ns, saved, guardFile(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(res.IPs) != 1 || !strings.HasPrefix(res.IPs[0].String(), "10.77.0.") || len(res.Warnings) > 0 {
			t.Fatalf("%+v", res)
		}
		kept[id] = network.Kept{Attachment: a, Netns: ns, Saved: saved, Result: &res}
		defer serve(t, ns, ":80", id)()
		if got, err := ask(res.IPs[0].String() + ":80"); got != id {
			t.Errorf("by its address: %q, %v", got, err)
		}
		if got, err := ask(fmt.Sprintf("127.0.0.1:%d", 8081+i)); got != id {
			t.Errorf("by its host port: %q, %v", got, err)
		}
		if !strings.Contains(run(t, "ip", "netns", "exec", id, "ip", "-o", "link"), "eth0") {
			t.Error("no eth0")
		}
		if version >= "0.4.0" {
			if err := r.p.Check(t.Context(), kept[id], nil); err != nil {
				t.Errorf("check: %v", err)
			}
		}
	}
	if got := leases(t, name); len(got) != 2 {
		t.Errorf("leases %v", got)
	}
	if rules := run(t, "iptables", "-t", "nat", "-S"); !strings.Contains(rules, "8081") {
		t.Logf("rules are not iptables': %s", rules)
	}
	gone := "p2" + name
	r.again() // as after a restart, and the namespace of one is gone, and its cache file broken
	var all []network.Kept
	for _, k := range kept {
		all = append(all, k)
	}
	if err := r.p.Recovered(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	run(t, "ip", "-n", gone, "link", "del", "eth0") // its namespace ends later, if it has sockets
	run(t, "ip", "netns", "del", gone)
	if err := os.Truncate(filepath.Join(r.cache, "results", name+"-"+gone+"-eth0"), 0); err != nil {
		t.Fatal(err)
	}
	for id, k := range kept {
		if id == gone {
			k.Netns = ""
		}
		for range 2 {
			if err := r.down(k); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if got := leases(t, name); len(got) > 0 {
		t.Errorf("left are the leases %v", got)
	}
	if rules := run(t, "iptables", "-t", "nat", "-S"); strings.Contains(rules, "8081") || strings.Contains(rules, "8082") {
		t.Errorf("left are rules: %s", rules)
	}
	if links := run(t, "ip", "-o", "link"); strings.Contains(links, "veth") {
		t.Errorf("left are links: %s", links)
	}
}

// A plugin of the chain that fails leaves no address.
func TestPublicPluginsAfterAFailedADD(t *testing.T) {
	dir := publicDir(t)
	if !inNamespaces(t) {
		return
	}
	r := publicRig(t, dir, oneConf("net", "1.0.0",
		`{"type":"bridge","bridge":"testbr0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/24"}]]}}`,
		`{"type":"failing"}`))
	r.install("failing")
	r.acts("failing", map[string]act{"ADD": {Code: 999, Msg: "no"}})
	ns := namespace(t, "a")
	saved := r.plan(pod("a"))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := r.p.SetUp(ctx, pod("a"), ns, saved, guardFile(t))
	if err == nil || !strings.Contains(err.Error(), "plugin failing: ADD") {
		t.Errorf("error %v", err)
	}
	if len(leases(t, "net")) != 1 {
		t.Error("no address was leased; the test shows nothing")
	}
	cancel() // the caller has gone
	if err := r.p.TearDown(t.Context(), pod("a"), ns, saved, guardFile(t)); err != nil {
		t.Errorf("tear down: %v", err)
	}
	if got := leases(t, "net"); len(got) > 0 {
		t.Errorf("left are the leases %v", got)
	}
}

// Three addresses, and a fourth pod.
func TestPublicRangeIsFull(t *testing.T) {
	dir := publicDir(t)
	if !inNamespaces(t) {
		return
	}
	r := publicRig(t, dir, oneConf("net", "1.0.0", `{"type":"ptp","ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/30"}]]}}`))
	k := network.Kept{Attachment: pod("a"), Netns: namespace(t, "a"), Saved: r.plan(pod("a"))}
	if _, err := r.p.SetUp(t.Context(), k.Attachment, k.Netns, k.Saved, nil); err != nil {
		t.Fatal(err)
	}
	saved := r.plan(pod("b"))
	ns := namespace(t, "b")
	_, err := r.p.SetUp(t.Context(), pod("b"), ns, saved, nil)
	if err == nil || !strings.Contains(err.Error(), "no IP addresses available") {
		t.Errorf("error %v", err)
	}
	if err := errors.Join(r.p.TearDown(t.Context(), pod("b"), ns, saved, nil), r.down(k)); err != nil {
		t.Error(err)
	}
	if got := leases(t, "net"); len(got) > 0 {
		t.Errorf("left are the leases %v", got)
	}
}
