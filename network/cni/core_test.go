package cni

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

// machine is what a whole network is on, over fake plugins.
type machine struct {
	*rig
	spaces *networktest.Namespaces
	state  string
	boot   int
}

// start starts an agent.
func (m *machine) start(exclusive bool) (n *network.Network, end func()) {
	m.t.Helper()
	m.again()
	n, err := network.New(network.Config{
		Plugins: []network.Plugin{m.p}, StateDir: m.state, NetnsDir: "/netns", Namespaces: m.spaces, BootID: fmt.Sprint(m.boot),
		Exclusive: exclusive, Log: m.cfg.Log,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	stop := testrun.Start(m.t, n.Run)
	m.until("it is not ready", func() bool { return n.Status() == nil })
	return n, stop
}

func (m *machine) until(what string, ok func() bool) {
	m.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatal(what)
		}
	}
}

func newMachine(t *testing.T, version string) *machine {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", version, `{"type":"main"}`))
	return &machine{rig: r, spaces: &networktest.Namespaces{}, state: t.TempDir()}
}

// After a boot each pod of the one before is taken back by one DEL without a
// namespace, which is no error, and nothing is left.
func TestFiftyPodsAndAReboot(t *testing.T) {
	m := newMachine(t, "1.0.0")
	n, end := m.start(false)
	for i := range 50 {
		if _, err := n.Attach(t.Context(), pod(fmt.Sprint("p", i))); err != nil {
			t.Fatal(err)
		}
	}
	end()
	m.heard()
	m.logs.TakeAll()
	m.spaces.Reboot()
	m.boot++
	n, end = m.start(false)
	defer end()
	m.until("attachments are left", func() bool { return len(n.List()) == 0 })
	dels := m.heard("ADD", "DEL", "CHECK")
	if len(dels) != 50 {
		t.Errorf("%d calls", len(dels))
	}
	for _, h := range dels {
		if h.Verb != "DEL" || h.Env["CNI_NETNS"] != "" || request(t, h)["prevResult"] == nil {
			t.Errorf("%s with CNI_NETNS=%s %s", h.Verb, h.Env["CNI_NETNS"], h.Stdin)
		}
	}
	for _, e := range m.logs.All() {
		if e.Level > 0 {
			t.Errorf("logged: %s %v", e.Message, e.ContextMap())
		}
	}
	for _, dir := range []string{filepath.Join(m.cache, "results"), filepath.Join(m.state, "records")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", dir, left, err)
		}
	}
}

// Two runtimes with one configuration: what the other one has is not collected,
// neither at a start nor for a record that is lost. Alone, it is.
func TestTwoRuntimesWithOneConfiguration(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		m := newMachine(t, "1.1.0")
		n, end := m.start(exclusive)
		for _, id := range []string{"stays", "lost"} {
			if _, err := n.Attach(t.Context(), pod(id)); err != nil {
				t.Fatal(err)
			}
		}
		end()
		if err := os.WriteFile(filepath.Join(m.state, "records", "lost.record"), []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		m.heard()
		n, end = m.start(exclusive)
		if _, ok := n.Get("stays"); !ok {
			t.Error("what is attached is not")
		}
		heard := m.heard("GC", "DEL")
		if len(heard) > 0 != exclusive {
			t.Errorf("exclusive %v: %d calls", exclusive, len(heard))
		}
		for _, h := range heard {
			if !exclusive {
				t.Errorf("%s of %s", h.Verb, h.Env["CNI_CONTAINERID"])
			} else if h.Verb == "DEL" && h.Env["CNI_CONTAINERID"] != "lost" {
				t.Errorf("DEL of %s", h.Env["CNI_CONTAINERID"])
			}
		}
		end()
	}
}
