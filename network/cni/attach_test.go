package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodewright/nodewright/network"
)

func TestEveryVerbAndVersionThroughARealPlugin(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run("version"+version, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			r.install("first", "second")
			r.write("10-net.conflist", oneConf("net", version, `{"type":"first"}`, `{"type":"second"}`))
			k := r.mustUp(pod("a"))
			if got := r.heard("VERSION", "STATUS", "ADD"); version == "1.1.0" && kinds(got) != "first second first second first second" && kinds(got) != "second first first second first second" {
				t.Errorf("ran %s", kinds(got))
			}
			want := []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}
			if len(k.Result.IPs) != 2 || k.Result.IPs[0] != want[0] || k.Result.IPs[1] != want[1] || k.Result.Netns != someNetns {
				t.Errorf("result %+v", k.Result)
			}
			if err := r.p.Check(t.Context(), k, nil); err != nil {
				t.Errorf("check: %v", err)
			}
			atLeast04 := version >= "0.4.0"
			checks := r.heard("CHECK")
			if (kinds(checks) == "first second") != atLeast04 {
				t.Errorf("CHECK of %q", kinds(checks))
			}
			if err := r.p.Collect(t.Context(), []network.Kept{k}); err != nil {
				t.Errorf("collect: %v", err)
			}
			if gcs := r.heard("GC"); (kinds(gcs) == "first second") != (version == "1.1.0") {
				t.Errorf("GC of %q", kinds(gcs))
			}
			if err := r.down(k); err != nil {
				t.Errorf("tear down: %v", err)
			}
			dels := r.heard("DEL")
			if kinds(dels) != "second first" {
				t.Fatalf("DEL of %q; want the reverse order", kinds(dels))
			}
			for _, h := range append(checks, dels...) {
				req := request(t, h)
				if _, ok := req["prevResult"]; ok != atLeast04 {
					t.Errorf("%s of %s: %s", h.Verb, h.Kind, h.Stdin)
				}
				if got := string(req["cniVersion"]); got != `"`+version+`"` && version != "" {
					t.Errorf("%s in version %s", h.Verb, got)
				}
				if string(req["name"]) != `"net"` || h.Env["CNI_CONTAINERID"] != "a" || h.Env["CNI_NETNS"] != someNetns || h.Env["CNI_IFNAME"] != "eth0" || h.Env["CNI_PATH"] != r.bin {
					t.Errorf("%s: %v %s", h.Verb, h.Env, h.Stdin)
				}
			}
			if left, _ := os.ReadDir(filepath.Join(r.cache, "results")); len(left) > 0 {
				t.Errorf("left in the cache: %v", left)
			}
			if err := r.down(k); err != nil {
				t.Errorf("tear down again: %v", err)
			}
		})
	}
}

func TestArgumentsAndCapabilities(t *testing.T) {
	r := newRig(t, false)
	r.install("main", "meta")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main","capabilities":{"dns":true,"portMappings":false}}`,
		`{"type":"meta","capabilities":{"portMappings":true,"bandwidth":true,"cgroupPath":true,"io.kubernetes.cri.pod-annotations":true}}`))
	a, port := pod("a"), freePort(t)
	a.Ports = []network.Port{
		{Protocol: "TCP", HostPort: port, ContainerPort: 80},
		{Protocol: "udp", HostPort: port, ContainerPort: 80, HostIP: netip.MustParseAddr("127.0.0.1")},
		{Protocol: "tcp", HostPort: 0, ContainerPort: 81},
	}
	a.Ingress, a.CgroupParent = 1_000_000, "/kubepods/pod1"
	a.DNS = network.DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"svc"}, Options: []string{"ndots:5"}}
	a.Annotations = map[string]string{"k": "<v>"}
	k := r.mustUp(a)
	adds := r.heard("ADD")
	if len(adds) != 2 {
		t.Fatalf("ADD of %q", kinds(adds))
	}
	const args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-a;K8S_POD_INFRA_CONTAINER_ID=a;K8S_POD_UID=uid-a"
	if got := adds[0].Env["CNI_ARGS"]; got != args {
		t.Errorf("CNI_ARGS=%s\nwant     %s", got, args)
	}
	same := func(got json.RawMessage, want string) {
		t.Helper()
		var g, w any
		if json.Unmarshal(got, &g) != nil || json.Unmarshal([]byte(want), &w) != nil {
			t.Fatalf("%s", got)
		}
		gb, _ := json.Marshal(g)
		wb, _ := json.Marshal(w)
		if string(gb) != string(wb) {
			t.Errorf("runtimeConfig %s\nwant          %s", gb, wb)
		}
	}
	same(request(t, adds[0])["runtimeConfig"], `{"dns":{"servers":["10.0.0.10"],"searches":["svc"],"options":["ndots:5"]}}`)
	meta := `{"portMappings":[{"hostPort":PORT,"containerPort":80,"protocol":"tcp"},{"hostPort":PORT,"containerPort":80,"protocol":"udp","hostIP":"127.0.0.1"}],
		"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295},"cgroupPath":"/kubepods/pod1","io.kubernetes.cri.pod-annotations":{"k":"<v>"}}`
	meta = strings.ReplaceAll(meta, "PORT", fmt.Sprint(port))
	same(request(t, adds[1])["runtimeConfig"], meta)
	if len(k.Result.Warnings) > 0 {
		t.Errorf("warnings %q", k.Result.Warnings)
	}
	// DEL is told what ADD was, whatever the attachment says now.
	r.again()
	if err := r.p.TearDown(t.Context(), network.Attachment{ID: "a"}, "", k.Saved, nil); err != nil {
		t.Fatal(err)
	}
	dels := r.heard("DEL")
	same(request(t, dels[0])["runtimeConfig"], meta)
	if dels[0].Env["CNI_ARGS"] != args {
		t.Errorf("CNI_ARGS=%s", dels[0].Env["CNI_ARGS"])
	}
}

func TestWhatNoPluginServesIsAWarning(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main","capabilities":{"portMappings":false}}`))
	a := pod("a")
	a.Ports = []network.Port{{Protocol: "tcp", HostPort: 0, ContainerPort: 80}}
	if k := r.mustUp(a); len(k.Result.Warnings) > 0 {
		t.Errorf("a port without a host port: %q", k.Result.Warnings)
	}
	a.ID, a.Ports[0].HostPort, a.Egress = "b", 80, 1000
	want := `[host ports are not served by network "net" bandwidth limits are not served by network "net"]`
	if k := r.mustUp(a); strings.ReplaceAll("["+strings.Join(k.Result.Warnings, " ")+"]", "\n", "") != want {
		t.Errorf("warnings %q", k.Result.Warnings)
	}
}

func TestFieldsOfAPluginReachItUnchanged(t *testing.T) {
	const odd = `"big":12345678901234567890,"exact":1.10,"text":"<&>\u00e9","deep":{"z":[1,2,{"a":null}],"a":1E40},"runtimeConfig":{"own":1},"args":{"cni":{"x":"y"}}`
	for file, data := range map[string]string{
		"10-net.conflist": oneConf("net", "1.1.0", `{"type":"main",`+odd+`}`),
		"10-net.conf":     `{"cniVersion":"1.1.0","name":"net","type":"main",` + odd + `}`,
	} {
		r := newRig(t, false)
		r.install("main")
		r.write(file, data)
		k := r.mustUp(pod("a"))
		if err := r.down(k); err != nil {
			t.Fatal(err)
		}
		all := r.heard("ADD", "DEL", "STATUS")
		if len(all) != 3 {
			t.Fatalf("%s: %d calls", file, len(all))
		}
		for _, h := range all {
			req := request(t, h)
			for key, want := range map[string]string{
				"big": "12345678901234567890", "exact": "1.10", "text": `"<&>\u00e9"`, "deep": `{"z":[1,2,{"a":null}],"a":1E40}`,
				"runtimeConfig": `{"own":1}`, "args": `{"cni":{"x":"y"}}`, "name": `"net"`, "type": `"main"`, "cniVersion": `"1.1.0"`,
			} {
				if string(req[key]) != want {
					t.Errorf("%s: %s: %s is %s; want %s", file, h.Verb, key, req[key], want)
				}
			}
			if len(req) > 9 && h.Verb == "STATUS" {
				t.Errorf("%s: more than was written: %s", file, h.Stdin)
			}
		}
	}
}

func TestPluginErrorsHaveCodes(t *testing.T) {
	for _, c := range []struct {
		act   act
		code  network.Code
		texts []string
	}{
		{act{Code: 11, Msg: "wait", Details: "for it"}, network.Unavailable, []string{"plugin main: ADD: wait; for it (code 11)", `network "net"`}},
		{act{Code: 7, Msg: "bad config"}, network.FailedPrecondition, []string{"bad config (code 7)"}},
		{act{Code: 2, Msg: "field"}, network.FailedPrecondition, nil},
		{act{Code: 1, Msg: "version"}, network.FailedPrecondition, nil},
		{act{Code: 3, Msg: "no container"}, network.Unknown, []string{"(code 3)"}},
		{act{Code: 100, Msg: "own\nerror\x1b[31m"}, network.Unknown, []string{"own error [31m (code 100)"}},
		{act{Stdout: "Segmentation fault", Exit: 139}, network.Unknown, []string{"exit status 139", "Segmentation fault"}},
		{act{Stderr: "dying", Exit: 2}, network.Unknown, []string{"exit status 2", "dying"}},
		{act{Stdout: "no JSON"}, network.Unknown, []string{"plugin main: ADD", "invalid character"}},
		{act{Stdout: `{"cniVersion":"9.0.0"}`}, network.Unknown, []string{"9.0.0"}},
		{act{Stdout: `null`}, network.FailedPrecondition, []string{"no address"}},
		{act{Stdout: `[]`}, network.Unknown, nil},
		{act{Stdout: `{"cniVersion":"1.0.0","ips":[null]}`}, network.Unknown, []string{"ips[0] of the result is null"}},
		{act{Stdout: `{"cniVersion":"1.0.0","interfaces":[null],"ips":[{"address":"10.0.0.1/8"}]}`}, network.Unknown, []string{"interfaces[0] of the result is null"}},
		{act{Stdout: `{"cniVersion":"0.4.0","routes":[null],"ips":[{"version":"4","address":"10.0.0.1/8"}]}`}, network.Unknown, []string{"routes[0]"}},
		{act{Stdout: `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/test"}],"ips":[{"address":"10.0.0.1/8","interface":7}]}`}, network.Unknown, []string{"ips[0].interface of the result is 7; want one of its 1 interfaces"}},
		{act{Stdout: `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/test"}],"ips":[{"address":"10.0.0.1/8","interface":-1}]}`}, network.Unknown, nil},
		{act{Stdout: `{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/run/netns/test"}],"ips":[{"address":"10.0.0.1/8","interface":0}]}`}, network.FailedPrecondition, []string{"no address of interface eth0"}},
		{act{Stdout: `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"10.0.0.1/8","interface":0}]}`}, network.FailedPrecondition, nil},
		{act{Stdout: `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/other"}],"ips":[{"address":"10.0.0.1/8","interface":0}]}`}, network.FailedPrecondition, nil},
		{act{Stdout: `{"cniVersion":"1.0.0","ips":[{"address":"0.0.0.0/0"}]}`}, network.Unknown, []string{`"0.0.0.0" is not a pod address`}},
		{act{Stdout: `{"cniVersion":"1.0.0","ips":[{"address":"224.0.0.1/8"}]}`}, network.Unknown, nil},
		{act{Stdout: `{"cniVersion":"1.0.0","ips":[{"address":"127.0.0.1/8"}]}`}, network.Unknown, nil},
		{act{Stdout: `{"cniVersion":"1.0.0","interfaces":[{"name":"veth"}],"ips":[{"address":"10.0.0.1/8"},{"interface":0}]}`}, network.Unknown, []string{"result: invalid CIDR address"}},
		{act{Stdout: `{"cniVersion":"1.0.0","ips":[]}`}, network.FailedPrecondition, []string{"no address"}},
	} {
		r := newRig(t, false)
		r.install("main")
		r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		r.acts("main", map[string]act{"ADD": c.act})
		k, err := r.up(pod("a"))
		wantCode(t, err, c.code, c.texts...)
		if err := r.down(k); err != nil {
			t.Errorf("%+v: tear down: %v", c.act, err)
		}
		if left, _ := os.ReadDir(filepath.Join(r.cache, "results")); len(left) > 0 {
			t.Errorf("%+v: left in the cache: %v", c.act, left)
		}
	}
}

func TestPrimaryAddressByPreference(t *testing.T) {
	for prefer, want := range map[Preference]string{AsIs: "fd00::1 10.0.0.1 fd00::2 10.0.0.2", IPv4: "10.0.0.1 10.0.0.2 fd00::1 fd00::2", IPv6: "fd00::1 fd00::2 10.0.0.1 10.0.0.2"} {
		r := newRig(t, false, func(c *Config) { c.Prefer = prefer })
		r.install("main")
		r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		r.acts("main", map[string]act{"ADD": {Result: `{"cniVersion":"1.0.0","ips":[{"address":"fd00::1/64"},{"address":"10.0.0.1/24"},{"address":"10.0.0.1/24"},{"address":"fd00::2/64"},{"address":"10.0.0.2/24"}]}`}})
		var got []string
		for _, ip := range r.mustUp(pod("a")).Result.IPs {
			got = append(got, ip.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d: %s; want %s", prefer, got, want)
		}
	}
}

func TestAddressesByAnotherPathOfTheNamespace(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	dir := t.TempDir()
	ns, other := filepath.Join(dir, "ns"), filepath.Join(dir, "other")
	if err := os.WriteFile(ns, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ns, other); err != nil {
		t.Fatal(err)
	}
	r.acts("main", map[string]act{"ADD": {Result: `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"` + other + `"}],"ips":[{"address":"10.0.0.1/24","interface":0}]}`}})
	if res, err := r.p.SetUp(t.Context(), pod("a"), ns, r.plan(pod("a")), nil); err != nil || len(res.IPs) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestArgumentsThatCannotBeSaid(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main","capabilities":{"io.kubernetes.cri.pod-annotations":true}}`))
	for field, a := range map[string]network.Attachment{
		"Name":      {ID: "a", Name: "x;K8S_POD_UID=other"},
		"Namespace": {ID: "a", Namespace: "a=b"},
		"UID":       {ID: "a", UID: "x\x00y"},
		"ID is":     {ID: strings.Repeat("x", 129)},
		"bytes":     {ID: "a", Annotations: map[string]string{"k": strings.Repeat("x", 300<<10)}},
	} {
		_, err := r.p.Plan(t.Context(), a)
		wantCode(t, err, network.InvalidArgument, field)
	}
}

func TestADDFailsInTheSecondPluginAndDELIsOfAll(t *testing.T) {
	r := newRig(t, false)
	r.install("first", "second", "third")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"first"}`, `{"type":"second"}`, `{"type":"third"}`))
	r.acts("second", map[string]act{"ADD": {Code: 5, Msg: "io"}})
	k, err := r.up(pod("a"))
	wantCode(t, err, network.Unknown, "plugin second: ADD: io (code 5)")
	if got := kinds(r.heard("ADD")); got != "first second" {
		t.Errorf("ADD of %s", got)
	}
	if err := r.down(k); err != nil {
		t.Fatal(err)
	}
	if got := kinds(r.heard("DEL")); got != "third second first" {
		t.Errorf("DEL of %s", got)
	}
}

// Code 3 of a plugin in the middle says nothing of the others.
func TestUnknownContainerIsTakenBack(t *testing.T) {
	r := newRig(t, false)
	r.install("first", "second")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"first"}`, `{"type":"second"}`))
	k := r.mustUp(pod("a"))
	r.acts("second", map[string]act{"DEL": {Code: 3, Msg: "unknown container"}})
	if err := r.down(k); err != nil {
		t.Fatal(err)
	}
	if got := kinds(r.heard("DEL")); got != "second first" {
		t.Errorf("DEL of %s", got)
	}
}

func TestDELFailsAndIsDoneLater(t *testing.T) {
	r := newRig(t, false)
	r.install("main", "meta")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`, `{"type":"meta"}`))
	k := r.mustUp(pod("a"))
	r.acts("main", map[string]act{"DEL": {Code: 11, Msg: "later"}})
	wantCode(t, r.down(k), network.Unavailable, "plugin main: DEL: later")
	// The executable of the other one goes, and the configuration.
	if err := os.Remove(filepath.Join(r.bin, "meta")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(r.conf); err != nil {
		t.Fatal(err)
	}
	r.heard()
	wantCode(t, r.down(k), network.FailedPrecondition, "plugin meta is not in "+r.bin)
	if all := r.heard("DEL"); len(all) > 0 {
		t.Errorf("DEL of %s", kinds(all))
	}
	r.install("meta")
	r.acts("main", nil)
	r.again()
	if err := r.p.Recovered(t.Context(), []network.Kept{k}); err != nil {
		t.Fatal(err)
	}
	if err := r.down(k); err != nil {
		t.Fatal(err)
	}
	for _, h := range r.heard("DEL") {
		if request(t, h)["prevResult"] == nil {
			t.Errorf("DEL of %s without the result", h.Kind)
		}
	}
}

func TestRebootTakesBackWithoutNamespaces(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	var kept []network.Kept
	for i := range 50 {
		kept = append(kept, r.mustUp(pod("pod"+string(rune('a'+i%26))+string(rune('a'+i/26)))))
	}
	r.heard()
	r.again()
	for i := range kept {
		kept[i].Result, kept[i].Netns = nil, ""
	}
	if err := r.p.Recovered(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	for _, k := range kept {
		if err := r.down(k); err != nil {
			t.Error(err)
		}
	}
	dels := r.heard("DEL")
	if len(dels) != 50 {
		t.Errorf("%d DELs", len(dels))
	}
	for _, h := range dels {
		if ns, ok := h.Env["CNI_NETNS"]; ns != "" || !ok || request(t, h)["prevResult"] == nil {
			t.Errorf("CNI_NETNS=%s %s", ns, h.Stdin)
		}
	}
}

// oneReal runs one kind of plugin as processes.
type oneReal struct {
	kind string
	inMemory
}

func (o oneReal) run(ctx context.Context, c command, left *sync.WaitGroup) (output, error) {
	if filepath.Base(c.path) == o.kind {
		return groups{}.run(ctx, c, left)
	}
	return o.inMemory.run(ctx, c, left)
}

// A plugin that hangs hurts its own attachment and no other.
// deadline is a context whose deadline is over when a test says so.
type deadline struct {
	context.Context
	over chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestAHungPluginHurtsOnePod(t *testing.T) {
	r := newRig(t, true, func(c *Config) { c.DelTimeout = 3 * time.Second })
	r.install("main", "hung")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	r.acts("hung", map[string]act{"ADD": {Hang: true, Child: true}, "DEL": {Hang: true}})
	good := r.plan(pod("b"))
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"hung"}`))
	r.again()
	bad := r.plan(pod("a"))
	r.p.processes = oneReal{"hung", inMemory{state: r.state}} // which are quick
	hung := make(chan error, 1)
	ctx := deadline{context.Background(), make(chan struct{})}
	go func() {
		_, err := r.p.SetUp(ctx, pod("a"), someNetns, bad, nil)
		hung <- err
	}()
	group := r.await("ADD")
	for _, id := range []string{"b", "c", "d"} {
		if _, err := r.p.SetUp(t.Context(), pod(id), someNetns, good, nil); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := r.p.Status(); err != nil {
		t.Error(err)
	}
	if _, ok := r.p.load(t.Context()); !ok {
		t.Error("not reloaded")
	}
	select {
	case err := <-hung:
		t.Errorf("the hung one ended before the others: %v", err)
		hung <- err
	default:
	}
	close(ctx.over)
	wantCode(t, <-hung, network.DeadlineExceeded, "plugin hung: ADD: killed at the deadline")
	for _, pid := range []int{group.Pid, group.Child} {
		if alive(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
	wantCode(t, r.p.TearDown(t.Context(), pod("a"), someNetns, bad, nil), network.DeadlineExceeded, "plugin hung: DEL")
	r.acts("hung", nil)
	if err := r.p.TearDown(t.Context(), pod("a"), someNetns, bad, nil); err != nil {
		t.Error(err)
	}
}

// The ID becomes a part of a file's name.
func TestIllegalIDs(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	saved := r.plan(pod("a"))
	victim := filepath.Join(r.cache, "victim-eth0")
	if err := os.MkdirAll(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "/../../victim", "a/b", "..", "-a", "a b", "a\x00", strings.Repeat("x", 129)} {
		_, err := r.p.Plan(t.Context(), pod(id))
		wantCode(t, err, network.InvalidArgument, "ID is")
		_, err = r.p.SetUp(t.Context(), pod(id), someNetns, saved, nil)
		wantCode(t, err, network.InvalidArgument, "ID is")
		wantCode(t, r.p.TearDown(t.Context(), pod(id), someNetns, saved, nil), network.InvalidArgument, "ID is")
		wantCode(t, r.p.Check(t.Context(), network.Kept{Attachment: pod(id), Saved: saved}, nil), network.InvalidArgument, "ID is")
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
	if all := r.heard("ADD", "DEL", "CHECK"); len(all) > 0 {
		t.Errorf("ran %s", kinds(all))
	}
}

func TestTheCacheIsPrivate(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	if err := os.MkdirAll(filepath.Join(r.cache, "results"), 0o777); err != nil {
		t.Fatal(err)
	}
	r.mustUp(pod("a"))
	for _, dir := range []string{r.cache, filepath.Join(r.cache, "results")} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}
