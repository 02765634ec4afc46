package cni

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/network"
)

// The public plugins below a whole network: pods at once, a plugin that hangs, a
// restart, and a reboot's worth of records.
func TestBelowANetwork(t *testing.T) {
	dir := publicDir(t)
	if !inNamespaces(t) {
		return
	}
	r := publicRig(t, dir, oneConf("net", "1.0.0",
		`{"type":"bridge","bridge":"testbr0","isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/24"}]]}}`,
		`{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"last"}`))
	r.install("last")
	state := t.TempDir()
	begin := func() (*network.Network, func()) {
		r.again()
		n, err := network.New(network.Config{Plugins: []network.Plugin{r.p}, StateDir: state, Prefix: "test", Exclusive: true, CheckAfterRestart: true, Log: r.cfg.Log,
			SetUpTimeout: slow, TearDownTimeout: slow, CheckTimeout: slow, CollectTimeout: slow})
		if err != nil {
			t.Fatal(err)
		}
		return n, testrun.Start(t, n.Run)
	}
	n, end := begin()
	pods := 12
	if testing.Short() {
		pods = 3 // each runs some sixty programs
	}
	var wg sync.WaitGroup
	attached := make(chan struct{})
	for i := range pods {
		wg.Go(func() {
			a := pod(fmt.Sprintf("pod%d", i))
			a.Ports = []network.Port{{Protocol: "tcp", HostPort: uint16(9000 + i), ContainerPort: 80}}
			if i > 0 { // of those that come first at once, portmap fails one: it looks for its chains and then makes them
				<-attached
			} else {
				defer close(attached)
			}
			begun := time.Now()
			res, err := n.Attach(t.Context(), a)
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			t.Logf("%d: %v after %v", i, res.IPs, time.Since(begun))
			again, err := n.Attach(t.Context(), a)
			if err != nil || again.IPs[0] != res.IPs[0] {
				t.Errorf("%v, %v", again, err)
			}
		})
	}
	wg.Wait()
	end()
	if got := leases(t, "net"); len(got) != pods {
		t.Fatalf("leases %v", got)
	}
	n, end = begin()
	defer func() { end() }()
	if err := n.Detach(t.Context(), "pod0"); err != nil {
		t.Error(err)
	}
	r.acts("last", map[string]act{"ADD": {Code: 11, Msg: "not now"}})
	if _, err := n.Attach(t.Context(), pod("failing")); network.CodeOf(err) != network.Unavailable || !strings.Contains(err.Error(), "not now") {
		t.Errorf("error %v", err)
	}
	r.acts("last", nil)
	for i := range pods {
		if err := n.Detach(t.Context(), fmt.Sprintf("pod%d", i)); err != nil {
			t.Error(err)
		}
	}
	if err := n.Detach(t.Context(), "failing"); err != nil {
		t.Error(err)
	}
	if got := leases(t, "net"); len(got) > 0 {
		t.Errorf("left are the leases %v", got)
	}
	for _, d := range []string{filepath.Join(r.cache, "results"), "/run/netns"} {
		if left, _ := os.ReadDir(d); len(left) > 0 {
			t.Errorf("left in %s: %v", d, left)
		}
	}
	for _, e := range r.logs.All() {
		if e.Level > 0 {
			t.Logf("%s %v", e.Message, e.ContextMap())
		}
	}
}

// A port of the node's own processes stays theirs with portmap too, and that of a pod is
// served although a socket holds it.
func TestPortmapTakesNoPortOfTheNode(t *testing.T) {
	dir := publicDir(t)
	if !inNamespaces(t) {
		return
	}
	r := publicRig(t, dir, oneConf("net", "1.0.0",
		`{"type":"bridge","bridge":"testbr0","isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/24"}]]}}`,
		`{"type":"portmap","snat":true,"capabilities":{"portMappings":true}}`))
	defer serve(t, "/proc/self/ns/net", "127.0.0.1:9001", "node")()
	attach := func(id string, port uint16) (network.Kept, error) {
		a := pod(id)
		a.Ports = []network.Port{{Protocol: "tcp", HostPort: port, ContainerPort: 80}}
		k := network.Kept{Attachment: a, Netns: namespace(t, id), Saved: r.plan(a)}
		_ = serve(t, k.Netns, ":80", id)
		res, err := r.p.SetUp(t.Context(), a, k.Netns, k.Saved, nil)
		k.Result = &res
		return k, err
	}
	if _, err := attach("evil", 9001); network.CodeOf(err) != network.AlreadyExists || !strings.Contains(err.Error(), "listens on 127.0.0.1:9001") {
		t.Errorf("the port of a process: %v", err)
	}
	k, err := attach("pod", 9002)
	if err != nil {
		t.Fatal(err)
	}
	for _, restarted := range []bool{false, true} {
		for addr, want := range map[string]string{"127.0.0.1:9001": "node", "127.0.0.1:9002": "pod", "10.77.0.1:9002": "pod"} {
			if got, err := ask(addr); got != want {
				t.Errorf("%s says %q, %v; want %s (restarted %v)", addr, got, err, want, restarted)
			}
		}
		r.again()
		if err := r.p.Recovered(t.Context(), []network.Kept{k}); err != nil {
			t.Fatal(err)
		}
	}
	if r.p.ports.Len() != 2 {
		t.Errorf("%d ports are held, want 2", r.p.ports.Len())
	}
	if err := r.down(k); err != nil || r.p.ports.Len() != 0 {
		t.Errorf("%v, %d ports are held", err, r.p.ports.Len())
	}
}
