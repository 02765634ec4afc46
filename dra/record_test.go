package dra

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestParseRecord(t *testing.T) {
	const good = `{"version":1,"uid":"u","namespace":"n","name":"c","pods":[{"uid":"p","uses":[{"container":"main"}]}],"drivers":[{"name":"d.e","prepared":true,"devices":[{"name":"x"}]}]}`
	for _, tt := range []struct{ name, change, to, want string }{
		{"good", "", "", ""},
		{"version", `"version":1`, `"version":2`, "version is 2"},
		{"uid", `"uid":"u"`, `"uid":"x"`, `uid is "x"`},
		{"no name", `"name":"c"`, `"name":""`, "want both"},
		{"no pods", `[{"uid":"p","uses":[{"container":"main"}]}]`, `[]`, "pods is empty"},
		{"null pod", `[{"uid":"p"`, `[null,{"uid":"p"`, "pods[0]"},
		{"pods twice", `[{"uid":"p"`, `[{"uid":"p"},{"uid":"p"`, "pods[1]"},
		{"driver's name", "d.e", "D E", "drivers[0]"},
		{"drivers twice", `[{"name":"d.e"`, `[{"name":"d.e"},{"name":"d.e"`, "drivers[1].name"},
		{"devices for nothing", `"prepared":true`, `"prepared":false`, "is not prepared"},
		{"more fields", `"uid":"u"`, `"uid":"u","extra":1`, "extra"},
		{"more after it", `]}]}`, `]}]} 1`, "there is data after"},
	} {
		_, err := parseRecord("u", []byte(strings.Replace(good, tt.change, tt.to, 1)))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestDriverNames(t *testing.T) {
	for name, good := range map[string]bool{
		"gpu.example.com": true, "a": true, "A-b.C": true, "0.1": true, "a--b": true,
		"": false, ".a": false, "a.": false, "a..b": false, "-a": false, "a-": false, "a.-b": false, "a-.b": false, "a/b": false, "a b": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false,
	} {
		if err := checkDriver(name); (err == nil) != good {
			t.Errorf("%q: %v, want good: %v", name, err, good)
		}
	}
}

// An accepted record is written again unchanged.
func FuzzParseRecord(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"uid":"u","namespace":"n","name":"c","boot":"b","pods":[{"uid":"p","namespace":"n","name":"x","uses":[{"container":"main","claim":"c","request":"r"}]}],"drivers":[{"name":"d.e","prepared":true,"devices":[{"pool":"p","name":"x","requests":["r"],"cdi":["v/c=x"],"share":"s"}]}]}`,
		`{}`, `null`, `[`, `{"version":1,"pods":[null]}`,
	} {
		f.Add("u", []byte(s))
	}
	f.Fuzz(func(t *testing.T, uid string, value []byte) {
		r, err := parseRecord(types.UID(uid), value)
		if err != nil {
			return
		}
		if err := checkUID(r.UID); err != nil {
			t.Error(err)
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseRecord(types.UID(uid), out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if twice, _ := json.Marshal(again); string(twice) != string(out) {
			t.Errorf("%s became %s", out, twice)
		}
	})
}
