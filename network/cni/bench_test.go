package cni

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodewright/nodewright/network/networktest"
)

// BenchmarkAttach is the plugin's own share of an attachment: planning, ADD and
// DEL of three plugins that take no time.
func BenchmarkAttach(b *testing.B) {
	r := newRig(b, false)
	r.install("main", "portmap", "bandwidth")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main","ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}]]}}`,
		`{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"bandwidth","capabilities":{"bandwidth":true}}`))
	r.p.processes = instant{}
	a := pod("a")
	a.Ingress = 1e6
	for b.Loop() {
		saved, err := r.p.Plan(b.Context(), a)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.p.SetUp(b.Context(), a, someNetns, saved, nil); err != nil {
			b.Fatal(err)
		}
		if err := r.p.TearDown(b.Context(), a, someNetns, saved, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// script is a plugin that takes hardly any time.
const script = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],"ips":[{"address":"10.0.0.3/24","interface":0}]}' ;;
esac
`

// BenchmarkOwnShare is what a whole attachment costs beyond the time of its
// plugins: ADD of three processes through a network with its synced record, less
// the same three processes run by hand. Each round does both, so that a busy
// machine is so for both.
func BenchmarkOwnShare(b *testing.B) {
	r := newRig(b, false)
	r.p.processes = groups{}
	var conf []string
	for _, name := range []string{"main", "second", "third"} {
		if err := os.WriteFile(filepath.Join(r.bin, name), []byte(script), 0o700); err != nil {
			b.Fatal(err)
		}
		conf = append(conf, fmt.Sprintf(`{"type":%q}`, name))
	}
	r.write("10.conflist", oneConf("net", "1.0.0", conf...))
	m := &machine{rig: r, spaces: &networktest.Namespaces{}, state: b.TempDir()}
	n, _, end := m.start(false)
	defer end()
	stdin := []byte(resultOfOne)
	env := []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=a", "CNI_NETNS=" + someNetns, "CNI_IFNAME=eth0", "CNI_PATH=" + r.bin, "PATH=" + usualPath}
	var through, byHand []time.Duration
	for i := range b.N {
		id := fmt.Sprint("p", i)
		begin := time.Now()
		if _, err := n.Attach(b.Context(), pod(id)); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		for _, name := range []string{"main", "second", "third"} {
			c := exec.Command(filepath.Join(r.bin, name))
			var stdout, stderr bytes.Buffer
			c.Env, c.Stdin, c.Stdout, c.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
			if err := c.Run(); err != nil {
				b.Fatal(err)
			}
		}
		through, byHand = append(through, middle.Sub(begin)), append(byHand, time.Since(middle))
		if err := n.Detach(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(through)
	slices.Sort(byHand)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(byHand[len(byHand)/2]), "plugins-p50-ms")
	b.ReportMetric(ms(through[len(through)/2]-byHand[len(byHand)/2]), "own-p50-ms")
	b.ReportMetric(ms(through[len(through)/20]-byHand[len(byHand)/20]), "own-p5-ms") // as on a quiet machine
}

type instant struct{}

func (instant) run(_ context.Context, c command, _ *sync.WaitGroup) (output, error) {
	if c.verb == "VERSION" {
		return output{stdout: []byte(`{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}`)}, nil
	}
	return output{stdout: []byte(resultOfOne)}, nil
}

func BenchmarkStatus(b *testing.B) {
	r := newRig(b, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	r.inUse()
	b.ReportAllocs()
	for b.Loop() {
		if err := r.p.Status(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProcess is the cost of running a plugin that does nothing, with and
// without this package's care.
func BenchmarkProcess(b *testing.B) {
	if _, err := os.Stat("/bin/true"); err != nil {
		b.Skip(err)
	}
	stdin := []byte(resultOfOne)
	b.Run("plugin", func(b *testing.B) {
		var left sync.WaitGroup
		for b.Loop() {
			if out, err := (groups{}).run(b.Context(), command{path: "/bin/true", stdin: stdin}, &left); err != nil || out.failed != nil {
				b.Fatal(err, out.failed)
			}
		}
	})
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			c := exec.Command("/bin/true")
			var stdout, stderr bytes.Buffer
			c.Env, c.Stdin, c.Stdout, c.Stderr = []string{}, bytes.NewReader(stdin), &stdout, &stderr
			if err := c.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
