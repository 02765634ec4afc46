package hostchains_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/agent/internal/hostchains"
)

// The machine's own iptables, in a network namespace of the test's thread: the rules
// are taken as they are written, and found again.
func TestRealPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root, for a network namespace")
	}
	for _, p := range []string{"iptables", "ip6tables"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(err)
		}
	}
	m, err := hostchains.New(hostchains.Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("network namespace: %v", err)
			return
		}
		check(t, m)
	}()
	<-done
}

func check(t *testing.T, m *hostchains.Manager) {
	run := func(args ...string) string {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out, err := exec.Command("iptables", "-t", "mangle", "-S").CombinedOutput(); err != nil {
		t.Logf("left out: this kernel has no iptables: %s", out)
		return
	}
	for range 2 {
		if err := m.EnsureHere(t.Context()); err != nil {
			t.Logf("left out: %v", err) // a kernel without conntrack, or without IPv6
			return
		}
	}
	if rules := run("iptables", "-t", "filter", "-S"); strings.Count(rules, "-j KUBE-FIREWALL") != 2 || strings.Count(rules, "-j DROP") != 1 {
		t.Errorf("filter is %s", rules)
	}
	for _, p := range []string{"iptables", "ip6tables"} {
		if chains := run(p, "-t", "mangle", "-S"); !strings.Contains(chains, "-N KUBE-IPTABLES-HINT") {
			t.Errorf("mangle of %s is %s", p, chains)
		}
	}
	run("iptables", "-t", "filter", "-F")
	if err := m.EnsureHere(t.Context()); err != nil {
		t.Error(err)
	}
	if rules := run("iptables", "-t", "filter", "-S"); strings.Count(rules, "-j KUBE-FIREWALL") != 2 || strings.Count(rules, "-j DROP") != 1 {
		t.Errorf("after a flush filter is %s", rules)
	}
}
