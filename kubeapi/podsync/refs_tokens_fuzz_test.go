package podsync

import (
	"encoding/json"
	"testing"
)

// Whatever was kept, it is a token or an error, and a token is written as it is
// read.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "null", "{}", "[]", "{", `{"Value":"x"}`, `{"value":"x","Expires":"2000-01-01T00:00:00Z"}`, `{"Value":"x","Expires":"never"}`, `{"Value":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		is, err := parse(b)
		if (is == nil) == (err == nil) {
			t.Fatalf("%v, %v", is, err)
		}
		if err != nil {
			return
		}
		again, err := json.Marshal(is)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := parse(again); err != nil || twice.Value != is.Value {
			t.Errorf("%s is read as %v, %v", again, twice, err)
		}
	})
}
