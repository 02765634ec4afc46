package httpbound_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nodewright/nodewright/internal/httpbound"
)

// takes is how many units a client gets, one by one.
func takes(p *httpbound.Pool, c httpbound.Client) (n int) {
	for p.Take(c, 1) {
		n++
	}
	return n
}

func TestPool(t *testing.T) {
	user := func(name string) httpbound.Client { return httpbound.Client{Name: name} }
	admin := httpbound.Client{Rank: httpbound.Admin, Name: "a"}
	root := httpbound.Client{Rank: httpbound.Machine}
	p := httpbound.NewPool(80, 20)
	for _, c := range []struct {
		client httpbound.Client
		want   int
	}{
		{user("u"), 20}, {user("u"), 0}, {user("v"), 20}, {user("w"), 20}, {user("x"), 0}, // 60 of 80
		{admin, 10}, {httpbound.Client{Rank: httpbound.Admin, Name: "b"}, 0}, {root, 10}, {root, 0},
	} {
		if got := takes(p, c.client); got != c.want {
			t.Errorf("%v gets %d units, want %d", c.client, got, c.want)
		}
	}
	p.Give(user("u"), 20)
	if got := takes(p, user("x")); got != 0 {
		t.Errorf("users get %d units of the reserves", got)
	}
	p.Give(admin, 10)
	if got := takes(p, user("x")); got != 10 {
		t.Errorf("another user gets %d of 10 free units", got)
	}
	small := httpbound.NewPool(1, 0)
	if got := takes(small, user("u")); got != 1 {
		t.Errorf("a user gets %d of 1 unit", got)
	}
}

// Whatever clients take and give back: nobody has more than may be, and nothing is lost.
func TestPoolKeepsItsUnits(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := httpbound.NewPool(100, 30)
		var used int64
		by, held := map[httpbound.Client]int64{}, map[httpbound.Client][]int64{}
		for range 500 {
			c := httpbound.Client{Rank: httpbound.Rank(r.IntN(3)), Name: fmt.Sprint(r.IntN(4))}
			if n := len(held[c]); n > 0 && r.IntN(2) == 0 {
				last := held[c][n-1]
				held[c] = held[c][:n-1]
				p.Give(c, last)
				used, by[c] = used-last, by[c]-last
			} else if n := int64(1 + r.IntN(20)); p.Take(c, n) {
				held[c] = append(held[c], n)
				used, by[c] = used+n, by[c]+n
				limit := map[httpbound.Rank]int64{httpbound.User: 75, httpbound.Admin: 88, httpbound.Machine: 100}[c.Rank]
				if used > limit || c.Rank == httpbound.User && by[c] > 30 {
					t.Fatalf("seed %d: %v has %d, all have %d", seed, c, by[c], used)
				}
			}
			if p.Used() != used {
				t.Fatalf("seed %d: %d units are used, want %d", seed, p.Used(), used)
			}
		}
	}
}
