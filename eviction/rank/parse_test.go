package rank

import (
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

type texts = map[string]string

func mi(n int64) Amount          { return Amount{Value: n << 20, Format: resource.BinarySI} }
func percent(f float64) Amount   { return Amount{Fraction: f / 100} }
func none(extra Text) Text       { extra.Hard = texts{}; return extra }
func hard(signal, s string) Text { return Text{Hard: texts{signal: s}} }

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		text Text
		want []Threshold
	}{
		{"nothing said", Text{}, []Threshold{
			{Signal: SignalMemory, Value: mi(100)},
			{Signal: SignalNodeFs, Value: percent(10)}, {Signal: SignalNodeFsInodes, Value: percent(5)},
			{Signal: SignalImageFs, Value: percent(15)}, {Signal: SignalImageFsInodes, Value: percent(5)},
			{Signal: SignalPIDs, Value: percent(10)},
		}},
		{"an empty map is none", Text{Hard: texts{}}, nil},
		{"keys given replace the defaults", hard("pid.available", "100"), []Threshold{
			{Signal: SignalPIDs, Value: Amount{Value: 100, Format: resource.DecimalSI}},
		}},
		{"or are merged with them", Text{Hard: texts{"memory.available": "150Mi", "imagefs.available": "0%"}, MergeDefaults: true}, []Threshold{
			{Signal: SignalMemory, Value: mi(150)},
			{Signal: SignalNodeFs, Value: percent(10)}, {Signal: SignalNodeFsInodes, Value: percent(5)},
			{Signal: SignalImageFsInodes, Value: percent(5)}, {Signal: SignalPIDs, Value: percent(10)},
		}},
		{"0% is off", hard("memory.available", "0%"), nil},
		{"100% is off", hard("memory.available", "100%"), nil},
		{"0.0% is a threshold that is never met", hard("memory.available", "0.0%"), []Threshold{{Signal: SignalMemory}}},
		{"fractions", hard("nodefs.available", "10.5%"), []Threshold{{Signal: SignalNodeFs, Value: percent(10.5)}}},
		{"several signs", hard("nodefs.available", "10%%"), []Threshold{{Signal: SignalNodeFs, Value: percent(10)}}},
		{"hard, soft, grace, reclaim", Text{
			Hard: texts{"memory.available": "150Mi"}, Soft: texts{"memory.available": "300Mi"},
			SoftGrace: texts{"memory.available": "30s"}, MinReclaim: texts{"memory.available": "0"},
		}, []Threshold{
			{Signal: SignalMemory, Value: mi(150), MinReclaim: Amount{Format: resource.DecimalSI}},
			{Signal: SignalMemory, Value: mi(300), Grace: 30 * time.Second, MinReclaim: Amount{Format: resource.DecimalSI}},
		}},
		{"reclaim in percent", Text{Hard: texts{"imagefs.available": "15%"}, MinReclaim: texts{"imagefs.available": "10.5%"}},
			[]Threshold{{Signal: SignalImageFs, Value: percent(15), MinReclaim: percent(10.5)}}},
		{"a soft grace of 0 is hard", none(Text{Soft: texts{"nodefs.available": "1Mi"}, SoftGrace: texts{"nodefs.available": "0s"}}),
			[]Threshold{{Signal: SignalNodeFs, Value: mi(1)}}},
		{"allocatable repeats what is hard of memory", Text{
			Hard: texts{"memory.available": "150Mi", "nodefs.available": "5%"}, Soft: texts{"memory.available": "300Mi"},
			SoftGrace: texts{"memory.available": "30s"}, MinReclaim: texts{"memory.available": "10Mi"}, Allocatable: true,
		}, []Threshold{
			{Signal: SignalMemory, Value: mi(150), MinReclaim: mi(10)}, {Signal: SignalNodeFs, Value: percent(5)},
			{Signal: SignalMemory, Value: mi(300), Grace: 30 * time.Second, MinReclaim: mi(10)},
			{Signal: SignalAllocatableMemory, Value: mi(150), MinReclaim: mi(10)},
		}},
		{"two that are hard make two", Text{
			Hard: texts{"memory.available": "150Mi"}, Soft: texts{"memory.available": "300Mi"},
			SoftGrace: texts{"memory.available": "0s"}, Allocatable: true,
		}, []Threshold{
			{Signal: SignalMemory, Value: mi(150)}, {Signal: SignalMemory, Value: mi(300)},
			{Signal: SignalAllocatableMemory, Value: mi(150)}, {Signal: SignalAllocatableMemory, Value: mi(300)},
		}},
		{"the names of allocatable and containerfs parse", Text{Hard: texts{"allocatableMemory.available": "1Mi", "containerfs.inodesFree": "5%"}},
			[]Threshold{{Signal: SignalAllocatableMemory, Value: mi(1)}, {Signal: SignalContainerFsInodes, Value: percent(5)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.text)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("Parse = %+v, %v\n want %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	soft := func(grace texts) Text {
		return none(Text{Soft: texts{"memory.available": "150Mi"}, SoftGrace: grace})
	}
	reclaim := func(signal, s string) Text { return none(Text{MinReclaim: texts{signal: s}}) }
	for _, tt := range []struct {
		name string
		text Text
		want string
	}{
		{"an unknown signal", hard("mem.available", "150Mi"), `hard threshold: unknown signal "mem.available"`},
		{"over 100%", hard("memory.available", "150%"), `is "150%"; want a percentage from 0% to 100%`},
		{"a negative percentage", hard("memory.available", "-15%"), `is "-15%"`},
		{"a negative quantity", hard("memory.available", "-150Mi"), `is "-150Mi"; want more than 0`},
		{"zero", hard("memory.available", "0"), `is "0"; want more than 0`},
		{"nothing", hard("memory.available", ""), `is ""; want a quantity`},
		{"two dots", hard("memory.available", "10..5%"), `is "10..5%"`},
		{"no number", hard("memory.available", "foo%"), `is "foo%"`},
		{"a number that is none", hard("memory.available", "NaN%"), `is "NaN%"`},
		{"no grace", soft(nil), "soft threshold of memory.available has no soft grace period"},
		{"another's grace", soft(texts{"nodefs.available": "1m"}), "soft threshold of memory.available has no soft grace period"},
		{"negative grace", soft(texts{"memory.available": "-30s"}), `is "-30s"; want 0 or more`},
		{"grace that is no duration", soft(texts{"memory.available": "30mins"}), `is "30mins"; want a duration`},
		{"grace of an unknown signal", soft(texts{"memory.available": "1s", "x": "1s"}), `soft grace period: unknown signal "x"`},
		{"reclaim of an unknown signal", reclaim("x", "1Mi"), `minimum reclaim: unknown signal "x"`},
		{"negative reclaim", reclaim("memory.available", "-15%"), `is "-15%"`},
		{"a negative quantity to reclaim", reclaim("memory.available", "-300Mi"), "want 0 or more"},
		{"0% to reclaim", reclaim("memory.available", "0%"), "want more than 0%"},
		{"nothing to reclaim", reclaim("memory.available", ""), `is ""`},
		{"reclaim with two dots", reclaim("memory.available", "10..%"), `is "10..%"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.text)
			if err == nil || got != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse = %v, %v; want an error with %s", got, err, tt.want)
			}
		})
	}
}

func TestParseNamesEveryMistake(t *testing.T) {
	_, err := Parse(Text{Hard: texts{"a": "1", "memory.available": "-1"}, SoftGrace: texts{"pid.available": "x"}})
	for _, want := range []string{`"a"`, "memory.available", "pid.available"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not speak of %s", err, want)
		}
	}
}

func TestMet(t *testing.T) {
	th := Threshold{Signal: SignalNodeFs, Value: percent(10), MinReclaim: Amount{Value: 5}}
	for _, tt := range []struct {
		available       int64
		met, unresolved bool
	}{{99, true, true}, {100, false, true}, {104, false, true}, {105, false, false}} {
		o := Observation{Available: tt.available, Capacity: 1000}
		if th.Met(o) != tt.met || th.Unresolved(o) != tt.unresolved {
			t.Errorf("%d of 1000: met %v, unresolved %v; want %v, %v", tt.available, th.Met(o), th.Unresolved(o), tt.met, tt.unresolved)
		}
	}
	if got := percent(10).Of(1009); got != 100 {
		t.Errorf("10%% of 1009 = %d, want 100: rounded down", got)
	}
	q := mi(100).Quantity(0)
	if q.String() != "100Mi" {
		t.Errorf("100Mi is shown as %s", q.String())
	}
}

func TestSignals(t *testing.T) {
	for s, want := range map[Signal]fact{
		SignalAllocatableMemory: {condition: v1.NodeMemoryPressure, resource: v1.ResourceMemory},
		SignalContainerFsInodes: {condition: v1.NodeDiskPressure, resource: ResourceInodes},
		SignalImageFs:           {condition: v1.NodeDiskPressure, resource: v1.ResourceEphemeralStorage},
		SignalPIDs:              {condition: v1.NodePIDPressure, resource: ResourcePIDs},
	} {
		if s.Condition() != want.condition || s.Resource() != want.resource {
			t.Errorf("%s: %s, %s", s, s.Condition(), s.Resource())
		}
	}
	if CompareSignals(SignalMemory, SignalNodeFs) >= 0 || CompareSignals("x", SignalPIDs) <= 0 {
		t.Error("memory is not first, or the unknown not last")
	}
	for c, key := range map[v1.NodeConditionType]string{
		v1.NodeMemoryPressure: "node.kubernetes.io/memory-pressure", v1.NodeDiskPressure: "node.kubernetes.io/disk-pressure",
		v1.NodePIDPressure: "node.kubernetes.io/pid-pressure", v1.NodeReady: "",
	} {
		if got, ok := Taint(c); got.Key != key || ok != (key != "") {
			t.Errorf("Taint(%s) = %v, %v", c, got, ok)
		}
	}
}

func TestForLayout(t *testing.T) {
	list := []Threshold{
		{Signal: SignalNodeFs, Value: mi(1)}, {Signal: SignalImageFs, Value: mi(2)}, {Signal: SignalContainerFs, Value: mi(3)},
		{Signal: SignalNodeFs, Value: mi(4), Grace: time.Minute}, {Signal: SignalImageFsInodes, Value: mi(5)},
	}
	for l, want := range map[Layout][]Threshold{
		LayoutSingle:    {{Signal: SignalContainerFs, Value: mi(1)}, {Signal: SignalContainerFs, Value: mi(4), Grace: time.Minute}},
		LayoutSplit:     {{Signal: SignalContainerFs, Value: mi(1)}, {Signal: SignalContainerFs, Value: mi(4), Grace: time.Minute}},
		LayoutDedicated: {{Signal: SignalContainerFs, Value: mi(2)}, {Signal: SignalContainerFsInodes, Value: mi(5)}},
	} {
		got, ignored := ForLayout(list, l)
		if !reflect.DeepEqual(got[4:], want) || !reflect.DeepEqual(ignored, list[2:3]) {
			t.Errorf("%v: derived %v, ignored %v", l, got[4:], ignored)
		}
	}
	for _, tt := range []struct {
		devices [3]string
		want    Layout
	}{
		{[3]string{"a", "a", "a"}, LayoutSingle}, {[3]string{"a", "b", "b"}, LayoutDedicated}, {[3]string{"a", "b", "a"}, LayoutSplit},
		{[3]string{"a", "", ""}, LayoutSingle}, {[3]string{"a", "b", ""}, LayoutDedicated},
	} {
		if got := LayoutOf(tt.devices[0], tt.devices[1], tt.devices[2]); got != tt.want {
			t.Errorf("LayoutOf(%q) = %v, want %v", tt.devices, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"100Mi", "10%", "0%", "10..5%", "-1", "1e300", "Inf%", "0.0%", "5%%", "1n", "9E"} {
		f.Add("memory.available", s, "30s", s)
	}
	f.Fuzz(func(t *testing.T, signal, value, grace, reclaim string) {
		list, err := Parse(Text{
			Hard: texts{signal: value}, Soft: texts{signal: value}, SoftGrace: texts{signal: grace},
			MinReclaim: texts{signal: reclaim}, Allocatable: true,
		})
		if err != nil {
			if list != nil {
				t.Error("a result beside an error")
			}
			return
		}
		for _, th := range list {
			v := th.Value.Of(1 << 40)
			if !th.Signal.Known() || th.Grace < 0 || v < 0 || th.MinReclaim.Of(1<<40) < 0 {
				t.Errorf("%+v makes no sense", th)
			}
			if th.Value.Fraction > 1 || th.Value.Fraction < 0 {
				t.Errorf("%+v is more than all or less than nothing", th)
			}
			if th.Met(Observation{Available: v, Capacity: 1 << 40}) {
				t.Errorf("%+v is met at its value", th)
			}
		}
	})
}
