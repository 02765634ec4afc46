package podsync

import (
	"encoding/json"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/strategicpatch"
)

// Patches leave out what is empty as JSON does, and know which fields of a condition can be.
func TestFieldsOfAStatusMayBeEmpty(t *testing.T) {
	if n := reflect.TypeFor[v1.PodCondition]().NumField(); n != 7 {
		t.Errorf("a condition has %d fields; withoutRest knows three of 7 that may be left out", n)
	}
	for _, f := range statusFields {
		if statusValues[f.name] == nil {
			t.Errorf("no values of %s are tried", f.name)
		}
	}
	for i := range reflect.TypeFor[v1.PodStatus]().NumField() {
		if f := reflect.TypeFor[v1.PodStatus]().Field(i); !strings.Contains(f.Tag.Get("json"), ",omitempty") {
			t.Errorf("%s is never left out", f.Name)
		}
	}
}

// plainPatch is patchOf over maps alone: slow, and by the rules of what JSON makes of both.
func plainPatch(t *testing.T, uid types.UID, api, next v1.PodStatus) any {
	t.Helper()
	was, err := strategicpatch.Object(api)
	if err != nil {
		t.Fatal(err)
	}
	is, err := strategicpatch.Object(next)
	if err != nil {
		t.Fatal(err)
	}
	own := func(list any) []any {
		return slices.DeleteFunc(strategicpatch.List(list), func(c any) bool {
			kind, _ := c.(map[string]any)["type"].(string)
			return !ours[v1.PodConditionType(kind)]
		})
	}
	conditions := strategicpatch.ByKey("type", own(was["conditions"]), own(is["conditions"]), strategicpatch.Overwrite)
	for _, m := range []map[string]any{was, is} {
		maps.DeleteFunc(m, func(name string, _ any) bool { return theirs[name] || name == "conditions" })
	}
	status := strategicpatch.Changes(was, is, func(name string, was, now any) any {
		switch now := now.(type) {
		case map[string]any:
			if was == nil {
				return now
			}
			return strategicpatch.Replace(now)
		case []any:
			if name == "podIPs" || name == "hostIPs" {
				return append([]any{strategicpatch.Replace(nil)}, now...)
			}
		}
		return now
	})
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	if len(status) == 0 {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"uid": string(uid)}, "status": status}
}

// statusValues are values of each field but conditions; "" is none.
var statusValues = map[string][]string{
	"observedGeneration": {"", "1", "2"}, "phase": {"", `"Pending"`, `"Running"`}, "message": {"", `"m<>"`}, "reason": {"", `"r"`},
	"nominatedNodeName": {"", `"n"`}, "hostIP": {"", `"192.0.2.7"`}, "hostIPs": {"", `[{"ip":"192.0.2.7"}]`, `[{"ip":"192.0.2.7"},{"ip":"fd00::7"}]`},
	"podIP": {"", `"10.0.0.1"`}, "podIPs": {"", "[]", `[{"ip":"10.0.0.1"}]`, `[{"ip":"10.0.0.2"}]`},
	"startTime":             {"", "null", `"2026-11-21T12:00:00Z"`, `"2026-11-21T12:00:01Z"`},
	"initContainerStatuses": {"", `[{"name":"i","ready":true,"restartCount":0,"image":"i","imageID":"","state":{"terminated":{"exitCode":0}},"lastState":{}}]`},
	"containerStatuses": {
		"", `[{"name":"c","ready":false,"restartCount":0,"image":"i","imageID":"","state":{"waiting":{"reason":"w"}},"lastState":{}}]`,
		`[{"name":"c","ready":true,"restartCount":1,"image":"i","imageID":"x","state":{"running":{"startedAt":"2026-11-21T12:00:00Z"}},"lastState":{},"resources":{"limits":{"cpu":"1"}}}]`,
	},
	"ephemeralContainerStatuses": {"", `[{"name":"e","ready":false,"restartCount":0,"image":"i","imageID":"","state":{},"lastState":{}}]`},
	"qosClass":                   {"", `"BestEffort"`}, "resize": {"", `"Proposed"`},
	"resourceClaimStatuses":                {"", `[{"name":"c","resourceClaimName":"x"}]`},
	"extendedResourceClaimStatus":          {"", `{"resourceClaimName":"x","requestMappings":[]}`},
	"allocatedResources":                   {"", `{"cpu":"1"}`, `{"cpu":"2","memory":"1Gi"}`},
	"resources":                            {"", `{}`, `{"requests":{"cpu":"1"}}`, `{"limits":{"cpu":"1"}}`},
	"nodeAllocatableResourceClaimStatuses": {""}, "volumeHealth": {""},
}

func TestPatchesAreThePlainOnes(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	one := func(of []string) string { return of[random.Intn(len(of))] }
	status := func() (s v1.PodStatus) {
		var fields []string
		for name, values := range statusValues {
			if v := one(values); v != "" {
				fields = append(fields, strconv.Quote(name)+":"+v)
			}
		}
		var conditions []string
		for _, kind := range append(slices.Collect(maps.Keys(ours)), "example.com/gate") {
			if random.Intn(2) == 0 {
				conditions = append(conditions, `{"type":"`+string(kind)+`","status":`+one([]string{`"True"`, `"False"`})+one([]string{"", `,"reason":"r"`})+
					one([]string{"", `,"message":"m"`})+one([]string{"", `,"observedGeneration":2`})+one([]string{"", `,"lastTransitionTime":"2026-11-21T12:00:00Z"`})+"}")
			}
		}
		fields = append(fields, `"conditions":[`+strings.Join(conditions, ",")+"]")
		if err := json.Unmarshal([]byte("{"+strings.Join(fields, ",")+"}"), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 1000 {
		api, next := status(), status()
		b, err := patchOf("uid", api, next)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if b != nil {
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
		}
		raw, err := json.Marshal(plainPatch(t, "uid", api, next))
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("patch:\n%s\nwant:\n%s", b, raw)
		}
	}
}
