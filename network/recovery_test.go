package network_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

var steps = flag.Int("steps", 400, "how many things happen to the random machine")

func (r *rig) set(config func(*network.Config)) { r.config = config }

func TestWhatIsAttachedStays(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		want := r.attach("a")
		r.attach("b")
		r.spaces.Put(r.SpacePath("b"), network.Space{}) // unmounted by hand
		r.plugin.Calls()
		r.restart()
		if got, ok := r.Get("a"); !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, %v; want %+v", got, ok, want)
		}
		if _, ok := r.Get("b"); ok || r.state("b") != network.Lost {
			t.Errorf("b is %v", r.state("b"))
		}
		_, err := r.Attach(t.Context(), pod("b"))
		wantCode(t, err, network.FailedPrecondition, "namespace", "detach it first")
		r.calls() // no plugin run
		for _, k := range r.plugin.Kept() {
			if k.Result == nil || string(k.Saved) != "plan of "+k.Attachment.ID || (k.Netns == "") != (k.Attachment.ID == "b") {
				t.Errorf("the plugin was told %+v", k)
			}
		}
		r.detach("a")
		r.detach("b")
		r.clean()
	})
}

func TestWhatWasBegunIsTakenBack(t *testing.T) {
	inRig(t, func(c *network.Config) { c.Plugins[0].(*networktest.Plugin).Lasting = true }, func(t *testing.T, r *rig) {
		r.attach("attached")
		r.attach("detaching")
		hang := make(chan struct{})
		r.plugin.SetHook(func(ctx context.Context, call, id string) error {
			if call == "TearDown" || id == "planned" && call == "SetUp" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		go func() { _, _ = r.Attach(context.Background(), pod("planned")) }()
		go func() { _ = r.Detach(context.Background(), "detaching") }()
		synctest.Wait()
		r.crash()
		close(hang)
		r.plugin.SetHook(nil)
		r.plugin.Calls()
		r.start()
		synctest.Wait()
		if l := r.List(); len(l) != 1 || l[0].ID != "attached" {
			t.Errorf("%+v", l)
		}
		r.detach("attached")
		r.clean()
	})
}

func TestReboots(t *testing.T) {
	for _, durable := range []bool{false, true} {
		inRig(t, func(c *network.Config) { c.Plugins[0].(*networktest.Plugin).Lasting = durable }, func(t *testing.T, r *rig) {
			for range 20 {
				pods := 50
				if durable { // each of which is synced
					pods = 5
				}
				for i := range pods {
					r.attach(fmt.Sprint("p", i))
				}
				r.plugin.Calls()
				r.reboot()
				synctest.Wait()
				if c := r.plugin.Calls(); len(c) != pods+1 { // and Recovered
					t.Errorf("calls %q", c)
				}
				for _, k := range r.plugin.Kept() {
					if k.Netns != "" || k.Result != nil {
						t.Errorf("the plugin was told %+v", k)
					}
				}
				r.clean()
			}
		})
	}
}

func TestNamespacesWithoutARecord(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		hex := strings.Repeat("0123456789abcdef", 2)
		ours := []string{"/netns/nodewright-" + hex, "/netns/nodewright-" + strings.Repeat("f", 32)}
		r.spaces.Put(ours[0], network.Space{Kind: network.SpaceNamed, ID: 1})
		r.spaces.Put(ours[1], network.Space{Kind: network.SpaceEmpty})
		others := []string{"/netns/cni-1", "/netns/nodewright-" + hex[1:], "/netns/other-" + hex, "/netns/nodewright-" + strings.ToUpper(hex), "/elsewhere/nodewright-" + hex}
		for i, o := range others {
			r.spaces.Put(o, network.Space{Kind: network.SpaceNamed, ID: uint64(10 + i)})
		}
		foreign := "/netns/nodewright-" + strings.Repeat("a", 32)
		r.spaces.Put(foreign, network.Space{Kind: network.SpaceForeign})
		r.restart()
		if left := r.spaces.Paths(); len(left) != len(others)+1 {
			t.Errorf("left: %q", left)
		}
	})
}

// A record that is damaged costs its own attachment.
func TestDamagedRecords(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"truncated": func(path string) error { return os.Truncate(path, 100) },
		"changed": func(path string) error {
			b, err := os.ReadFile(path)
			if err == nil {
				b[len(b)-10] ^= 1
				err = os.WriteFile(path, b, 0o600)
			}
			return err
		},
		"large": func(path string) error { return os.Truncate(path, 1<<40) },
		"a directory": func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path))
		},
		"another's": func(path string) error {
			b, err := os.ReadFile(strings.Replace(path, "bad", "good", 1))
			return errors.Join(err, os.WriteFile(path, b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, nil, func(t *testing.T, r *rig) {
				r.attach("bad")
				r.attach("good")
				r.crash()
				if err := damage(filepath.Join(r.dir, "records", "bad.record")); err != nil {
					t.Fatal(err)
				}
				r.start()
				if _, ok := r.Get("good"); !ok {
					t.Error("the other one is gone, too")
				}
				if r.state("bad") != network.Damaged {
					t.Errorf("%+v", r.List())
				}
				if len(r.spaces.Paths()) != 1 {
					t.Errorf("namespaces %q", r.spaces.Paths())
				}
				if len(r.plugin.Kept()) != 1 {
					t.Errorf("the plugin was told %+v", r.plugin.Kept())
				}
				r.detach("bad") // not known
				if err := r.Forget("bad"); err != nil {
					t.Error(err)
				}
				r.detach("good")
				if left := filesIn(t, r.dir); len(left) != 1 || !strings.HasSuffix(left[0], "bad.record.corrupt-1") {
					t.Errorf("files %q", left)
				}
			})
		})
	}
}

// Without a result, an attachment is one that was not finished.
func TestADamagedResult(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("a")
		r.crash()
		if err := os.WriteFile(filepath.Join(r.dir, "records", "a.progress"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.calls("SetUp a", "TearDown a")
		r.clean()
	})
}

func TestCollect(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		inRig(t, func(c *network.Config) { c.Exclusive = exclusive }, func(t *testing.T, r *rig) {
			r.attach("a")
			r.plugin.Take("lost", netip.MustParseAddr("10.9.9.9"))
			r.plugin.Calls()
			r.restart()
			if exclusive {
				r.calls("Collect ")
			} else {
				r.calls()
			}
			if _, left := r.plugin.Given()["lost"]; left == exclusive {
				t.Errorf("exclusive %v: given %v", exclusive, r.plugin.Given())
			}
			if _, ok := r.plugin.Given()["a"]; !ok {
				t.Error("a was collected")
			}
		})
	}
}

func TestChecks(t *testing.T) {
	inRig(t, func(c *network.Config) { c.CheckAfterRestart = true }, func(t *testing.T, r *rig) {
		for i := range 20 {
			r.attach(fmt.Sprint("p", i))
		}
		r.crash()
		var now, most, all atomic.Int32
		hang := make(chan struct{})
		r.plugin.SetHook(func(_ context.Context, call, id string) error {
			switch {
			case call == "Check" && id == "p7":
				<-hang
			case call == "Check":
				all.Add(1)
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second)
				now.Add(-1)
				return errors.New("it is not well")
			}
			return nil
		})
		r.start()
		r.attach("new") // does not wait for them
		time.Sleep(time.Hour)
		if most.Load() > 4 || all.Load() != 19 {
			t.Errorf("%d checks, %d at a time", all.Load(), most.Load())
		}
		if _, ok := r.Get("p1"); !ok {
			t.Error("a check had consequences")
		}
		wantCode(t, r.Detach(t.Context(), "p7"), network.Unavailable, "has not returned")
		close(hang)
		synctest.Wait()
		if r.state("p7") != 99 {
			t.Errorf("p7 is %v", r.state("p7"))
		}
	})
}

// What another plugin made is taken back by that one, and by nobody else.
func TestPluginsChange(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("old")
		r.attach("gone")
		next := &networktest.Plugin{NameIs: "next"}
		both := func(c *network.Config) { c.Plugins = []network.Plugin{next, r.plugin} }
		r.set(both)
		r.restart()
		r.attach("new")
		if len(next.Given()) != 1 {
			t.Errorf("given %v", next.Given())
		}
		r.detach("old")
		r.set(func(c *network.Config) { c.Plugins = []network.Plugin{next} })
		r.restart()
		if _, ok := r.Get("gone"); !ok {
			t.Error("it is not attached any more")
		}
		wantCode(t, r.Detach(t.Context(), "gone"), network.FailedPrecondition, "network plugin test")
		r.restart()
		r.set(both)
		r.restart()
		r.detach("gone")
		r.detach("new")
		r.clean()
		if err := next.Err(); err != nil || len(next.Given()) > 0 {
			t.Errorf("%v, given %v", err, next.Given())
		}
	})
}

func TestAPluginThatDoesNotRecover(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("a")
		r.crash()
		var tries atomic.Int32
		hang := make(chan struct{})
		r.plugin.SetHook(func(_ context.Context, call, _ string) error {
			if call == "Recovered" {
				switch tries.Add(1) {
				case 1, 2, 3:
					return errors.New("nf_tables is missing")
				case 4:
					<-hang
				}
			}
			return nil
		})
		r.plugin.Calls()
		r.start()
		if _, ok := r.Get("a"); !ok {
			t.Error("a is not known")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Attach(ctx, pod("b"))
		wantCode(t, err, network.Unavailable, "plugin test has not recovered yet", "nf_tables is missing")
		wantCode(t, r.Status(), network.Unavailable, "nf_tables is missing")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantCode(t, r.Detach(ctx, "a"), network.DeadlineExceeded)
		time.Sleep(10 * time.Minute)
		wantCode(t, r.Status(), network.Unavailable, "has not returned")
		r.calls() // neither b nor a
		close(hang)
		r.calls("TearDown a")
		if tries.Load() != 4 {
			t.Errorf("%d tries", tries.Load())
		}
		r.attach("b")
		r.detach("b")
		r.clean()
	})
}

// hangingDisk does not answer while it is told so, and fails while it is told
// so.
type hangingDisk struct {
	durable.OS
	hang atomic.Pointer[chan struct{}]
	fail atomic.Bool
}

func (d *hangingDisk) wait() error {
	if ch := d.hang.Load(); ch != nil {
		<-*ch
	}
	if d.fail.Load() {
		return errors.New("no space left on device")
	}
	return nil
}

func (d *hangingDisk) Write(path string, data []byte, sync bool) error {
	if err := d.wait(); err != nil {
		return err
	}
	return d.OS.Write(path, data, sync)
}

func (d *hangingDisk) List(dir string) ([]string, error) {
	if err := d.wait(); err != nil {
		return nil, err
	}
	return d.OS.List(dir)
}

func TestADiskThatHangs(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		d := &hangingDisk{OS: durable.OS{DirMode: 0o700, FileMode: 0o600, Limit: 4 << 20}}
		r.SetDisk(d)
		r.attach("a")
		d.fail.Store(true)
		_, err := r.Attach(t.Context(), pod("full"))
		wantCode(t, err, network.Unknown, "write record", "no space left on device")
		r.calls("SetUp a", "TearDown full")
		d.fail.Store(false)
		ch := make(chan struct{})
		d.hang.Store(&ch)
		begin := time.Now()
		_, err = r.Attach(t.Context(), pod("b"))
		wantCode(t, err, network.DeadlineExceeded, "write record")
		if took := time.Since(begin); took > 31*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, ok := r.Get("a"); !ok {
			t.Error("Get fails")
		}
		d.hang.Store(nil)
		close(ch)
		time.Sleep(time.Hour)
		r.detach("a")
		r.clean()
	})
}

func TestNamespacesThatHangOrFail(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		ch := make(chan struct{})
		r.spaces.SetHook(func(call, path string) error {
			if call == "Make" && path == r.SpacePath("bad") {
				<-ch
			}
			return nil
		})
		done := make(chan error)
		go func() {
			_, err := r.Attach(context.Background(), pod("bad"))
			done <- err
		}()
		synctest.Wait()
		r.attach("good")
		r.detach("good")
		wantCode(t, <-done, network.DeadlineExceeded, "make namespace")
		close(ch)
		r.clean()
		r.spaces.SetHook(func(call, path string) error {
			if call == "Make" {
				return errors.New("too many namespaces")
			}
			return nil
		})
		_, err := r.Attach(t.Context(), pod("a"))
		wantCode(t, err, network.Unknown, "too many namespaces")
		r.clean() // it is taken back by itself
		r.spaces.SetHook(nil)
		r.attach("b")
		r.spaces.SetHook(func(call, path string) error {
			if call == "Remove" {
				return errors.New("device is busy")
			}
			return nil
		})
		r.plugin.Calls()
		wantCode(t, r.Detach(t.Context(), "b"), network.Unknown, "device is busy")
		r.spaces.SetHook(nil)
		r.detach("b")
		r.calls("TearDown b") // once
		r.clean()
	})
}

// Another process that has the directory is waited for.
func TestTwoAgents(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		first, crash := r.Network, r.crash
		r.attach("a")
		r.start()
		wantCode(t, r.Status(), network.Unavailable, "another process")
		if _, ok := first.Get("a"); !ok {
			t.Error("a is gone")
		}
		crash()
		time.Sleep(time.Minute)
		if _, ok := r.Get("a"); !ok {
			t.Error("a is not known")
		}
		r.detach("a")
		r.clean()
	})
}

// Whatever happens, one call is made at a time for an ID, and in the end all is
// taken back.
func TestRandomMachine(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, 0))
		inRig(t, nil, func(t *testing.T, r *rig) {
			r.crash()
			r.plugin.Lasting = lasting
			r.start()
			// What is left of a process in this one would not be.
			crash := func() { r.crash(); time.Sleep(200 * time.Second) }
			var mu sync.Mutex
			roll := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return dice.IntN(n)
			}
			trouble := func(ctx context.Context, _, _ string) error {
				switch roll(10) {
				case 0:
					return errors.New("no")
				case 1:
					time.Sleep(time.Duration(roll(200)) * time.Second) // longer than it may
				case 2:
					<-ctx.Done()
					return ctx.Err()
				case 3:
					panic("boom")
				}
				return nil
			}
			r.plugin.SetHook(trouble)
			attached := map[string]string{}
			for range *steps {
				id := fmt.Sprint("p", roll(6))
				n := r.Network
				switch roll(12) {
				case 0:
					crash()
					r.start()
				case 1:
					crash()
					r.spaces.Reboot()
					r.boot++
					r.start()
					clear(attached)
				case 2:
					time.Sleep(time.Duration(roll(600)) * time.Second)
				case 3:
					_ = n.Forget("unknown")
				case 4, 5, 6, 7:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(roll(300))*time.Second)
					if res, err := n.Attach(ctx, pod(id)); err == nil {
						attached[id] = fmt.Sprint(res)
					}
					cancel()
				default:
					delete(attached, id)
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(roll(300))*time.Second)
					_ = n.Detach(ctx, id)
					cancel()
				}
				for id, want := range attached {
					if got, ok := r.Get(id); !ok || fmt.Sprint(got) != want {
						t.Errorf("seed %d: %s is %v, %v; want %s", seed, id, got, ok, want)
						delete(attached, id)
					}
				}
			}
			r.plugin.SetHook(nil)
			time.Sleep(time.Hour)
			for i := range 6 {
				if err := r.Detach(t.Context(), fmt.Sprint("p", i)); err != nil {
					t.Error(err)
				}
			}
			r.clean()
		})
	}
}

// vandal changes all that it is given.
type vandal struct{ *networktest.Plugin }

func vandalize(a network.Attachment, saved []byte) {
	for k := range a.Annotations {
		a.Annotations[k] = "vandalized"
	}
	for i := range a.Ports {
		a.Ports[i].HostPort++
	}
	clear(saved)
}

func (v vandal) Plan(ctx context.Context, a network.Attachment) ([]byte, error) {
	saved, err := v.Plugin.Plan(ctx, a)
	vandalize(a, nil)
	return saved, err
}

func (v vandal) SetUp(ctx context.Context, a network.Attachment, netns string, saved []byte, guard *os.File) (network.Result, error) {
	r, err := v.Plugin.SetUp(ctx, a, netns, saved, guard)
	vandalize(a, saved)
	return r, err
}

func (v vandal) Recovered(ctx context.Context, kept []network.Kept) error {
	for _, k := range kept {
		vandalize(k.Attachment, k.Saved)
		k.Result.IPs[0] = netip.Addr{}
	}
	return v.Plugin.Recovered(ctx, nil)
}

func TestPluginsThatChangeWhatTheyAreGiven(t *testing.T) {
	inRig(t, func(c *network.Config) { c.Plugins[0] = vandal{c.Plugins[0].(*networktest.Plugin)} }, func(t *testing.T, r *rig) {
		a := pod("a")
		a.Annotations = map[string]string{"k": "v"}
		a.Ports = []network.Port{{Protocol: "tcp", HostPort: 80, ContainerPort: 80}}
		first, err := r.Attach(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		r.restart()
		if again, err := r.Attach(t.Context(), a); err != nil || fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("%v, %v; want %v", again, err, first)
		}
		r.detach("a")
		r.clean()
	})
}

func TestErrorsThatSayTooMuch(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		long := network.Errorf(network.ResourceExhausted, "%s", strings.Repeat("ä", 1<<20))
		r.plugin.SetHook(func(_ context.Context, call, _ string) error {
			if call == "SetUp" {
				return long
			}
			return nil
		})
		_, err := r.Attach(t.Context(), pod("a"))
		wantCode(t, err, network.ResourceExhausted, "plugin test: set up")
		if n := len(err.Error()); n > 10<<10 || !errors.Is(err, long) {
			t.Errorf("%d bytes", n)
		}
		r.clean()
	})
}

// A directory of namespaces that does not answer loses nobody's network.
func TestNamespacesThatCannotBeLookedAt(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		for i := range 100 {
			r.attach(fmt.Sprint("p", i))
		}
		r.crash()
		hang := make(chan struct{})
		r.spaces.SetHook(func(call, _ string) error {
			if call == "Look" || call == "List" {
				<-hang
			}
			return nil
		})
		r.start()
		time.Sleep(31 * time.Second)
		for i := range 100 {
			if _, ok := r.Get(fmt.Sprint("p", i)); !ok {
				t.Fatalf("p%d is %v", i, r.state(fmt.Sprint("p", i)))
			}
		}
		close(hang)
		r.spaces.SetHook(nil)
		for i := range 100 {
			r.detach(fmt.Sprint("p", i))
		}
		r.clean()
	})
}

// Callers that gave up before they asked have nothing begun.
func TestAttachWithAContextThatHasEnded(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Attach(ctx, pod("a"))
		wantCode(t, err, network.Canceled)
		r.calls()
		r.clean()
	})
}
