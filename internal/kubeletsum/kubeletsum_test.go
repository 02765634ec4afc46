package kubeletsum

import (
	"hash/fnv"
	"testing"
)

func TestDump(t *testing.T) {
	d := &Dump{}
	text := func(s string) { d.Add("%s", s) }
	d.Add("(*t){N:(int)%d", 7)
	d.Add(" M:")
	Map(d, map[int]string{10: "ten", 9: "nine"}, text)
	Map(d, map[string]string{}, text)
	Map(d, map[string]string(nil), text)
	d.Add(" L:")
	List(d, []string{"a", "b"}, text)
	List(d, []string{}, text)
	List(d, []string(nil), text)
	d.Add(" P:")
	d.Null()
	d.Add("}")
	want := "(*t){N:(int)7 M:map[9:nine 10:ten]map[]<nil> L:[a b][]<nil> P:<nil>}"
	if got := d.b.String(); got != want {
		t.Errorf("dump %s, want %s", got, want)
	}
	h := fnv.New32a()
	h.Write([]byte(want))
	if got := d.Sum(); got != uint64(h.Sum32()) {
		t.Errorf("sum %d, want %d", got, h.Sum32())
	}
}

func TestOfText(t *testing.T) {
	const text = `{"entries":{}}`
	d := &Dump{}
	d.Add("(string)%s", text)
	if got, want := OfText(text), d.Sum(); got != want {
		t.Errorf("sum %d, want %d", got, want)
	}
}
