package dra_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/dra"
)

// shown is the health of a pod's container as "name: id=health(message)".
func (r *rig) shown(uid types.UID) string {
	var parts []string
	for _, st := range r.Health(uid, "main") {
		for _, h := range st.Resources {
			s := string(st.Name) + ": " + string(h.ResourceID) + "=" + string(h.Health)
			if h.Message != nil {
				s += "(" + *h.Message + ")"
			}
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "; ")
}

func TestHealth(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		told := map[types.UID]int{}
		var mu sync.Mutex
		r.Subscribe(func(c dra.Change) {
			mu.Lock()
			defer mu.Unlock()
			for _, uid := range c.Pods {
				told[uid]++
			}
		})
		r.claims.put(claim("a", "p"), claim("b", "q"))
		p := pod("p", "a")
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims,
			v1.ResourceClaim{Name: "my-a", Request: "r"}, v1.ResourceClaim{Name: "my-a", Request: "r/sub"}, v1.ResourceClaim{Name: "my-a", Request: "none"})
		r.prepare(p)
		r.prepare(pod("q", "b"))
		say := func(list ...dra.DeviceHealth) {
			r.gpu.health <- list
			synctest.Wait()
		}
		step := func(name, want string, p, q int) {
			t.Helper()
			synctest.Wait()
			want = strings.ReplaceAll(want, "ID", gpu+"/dev=a")
			if got := r.shown("p"); !strings.HasPrefix(got+";", want+";") {
				t.Errorf("%s: health %q, want %q first", name, got, want)
			}
			mu.Lock()
			defer mu.Unlock()
			if told["p"] != p || told["q"] != q {
				t.Errorf("%s: told %v, want p %d times and q %d times", name, told, p, q)
			}
			clear(told)
		}
		if got, want := r.shown("p"), strings.ReplaceAll("claim:my-a: ID=Unknown; claim:my-a/r: ID=Unknown; claim:my-a/r/sub: ID=Unknown", "ID", gpu+"/dev=a"); got != want {
			t.Errorf("health %q, want %q", got, want)
		}
		a := dra.DeviceHealth{Pool: "node", Device: "d-a", Health: dra.Healthy}
		b := dra.DeviceHealth{Pool: "node", Device: "d-b", Health: dra.Healthy, Timeout: time.Hour}
		say(a, b)
		step("healthy", "claim:my-a: ID=Healthy", 1, 1)
		say(a, b)
		step("the same", "claim:my-a: ID=Healthy", 0, 0)
		a.Message = "hot"
		say(a, b)
		step("a message", "claim:my-a: ID=Healthy(hot)", 1, 0)
		a.Health = dra.Unhealthy
		say(a)
		step("unhealthy", "claim:my-a: ID=Unhealthy(hot)", 1, 0)
		time.Sleep(30 * time.Second)
		step("as old as may be", "claim:my-a: ID=Unhealthy(hot)", 0, 0)
		time.Sleep(time.Second)
		step("too old", "claim:my-a: ID=Unknown", 1, 0)
		if got := r.shown("q"); !strings.Contains(got, "=Healthy") {
			t.Errorf("q, which names its own time: %q", got)
		}
		a.Health, a.Timeout, a.Message = dra.Healthy, -5, strings.Repeat("ä", 600)
		say(a, b)
		step("a long message", "claim:my-a: ID=Healthy("+strings.Repeat("ä", 510)+"...)", 1, 0)
		// Another instance that is fine is believed when this one's stream ends.
		second := newDriver(t, gpu)
		if err := r.Offer(gpu, "2", second); err != nil {
			t.Fatal(err)
		}
		a.Message = "from the second"
		second.health <- []dra.DeviceHealth{a}
		synctest.Wait()
		mu.Lock()
		clear(told)
		mu.Unlock()
		r.gpu.health <- nil
		step("the first ends", "claim:my-a: ID=Healthy(from the second)", 1, 1)
		r.Withdraw(gpu, "2")
		step("withdrawn", "claim:my-a: ID=Unknown", 1, 0)
		time.Sleep(6 * time.Second)
		say(a)
		step("the stream is back", "claim:my-a: ID=Healthy(from the second)", 1, 0)
		r.restart(nil)
		if got := r.shown("p"); !strings.HasPrefix(got, "claim:my-a: "+gpu+"/dev=a=Unknown;") {
			t.Errorf("after a restart of the agent: %q", got)
		}
	})
}

// Who does not tell of health is not asked again.
func TestNoHealth(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		nic := newDriver(t, "nic.example.com")
		nic.noHealth = true
		r.offer(nic)
		time.Sleep(time.Hour)
		synctest.Wait()
		if nic.watches != 1 {
			t.Errorf("asked %d times, want 1", nic.watches)
		}
		r.claims.put(claim("n=nic.example.com", "p"))
		nic.prepare = nil
		r.prepare(pod("p", "n"))
		if got := r.shown("p"); got != "claim:my-n: nic.example.com/dev=n=Unknown" {
			t.Errorf("health %q", got)
		}
	})
}

// A reader that is slow hears of everything, at last.
func TestSlowReader(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var told []dra.Change
		cancel := r.Subscribe(func(c dra.Change) { time.Sleep(time.Minute); told = append(told, c) })
		for i := range 10 {
			time.Sleep(time.Second)
			if err := r.Offer(string(rune('a'+i)), "1", newDriver(t, "x")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(told) != 2 || !slices.Equal(slices.Concat(told[0].Drivers, told[1].Drivers), strings.Split("abcdefghij", "")) {
			t.Errorf("told %v, want all in two", told)
		}
		cancel()
		cancel()
		_ = r.Offer("z", "1", newDriver(t, "x"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(told) != 2 {
			t.Errorf("told %v after cancel", told)
		}
		r.stop()
		r.Subscribe(func(dra.Change) { t.Error("told after the end") })()
	})
}
