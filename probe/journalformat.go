package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// journalVersion is the version of the format; it changes when the meaning of
// fields does.
const journalVersion = 1

// record has a pod's results by container ID, as they are stored in the journal.
type record map[string]results

// results has a container's results by type; a type without a result is Unknown.
type results [types3]Result

// journalFile is the JSON of one pod: results by container ID and by the names
// of types.
type journalFile struct {
	Version    int                          `json:"version"`
	Containers map[string]map[string]string `json:"containers"`
}

// encode returns r as it is stored in the journal. Equal records have equal encodings.
func encode(r record) []byte {
	f := journalFile{Version: journalVersion, Containers: map[string]map[string]string{}}
	for id, res := range r {
		by := map[string]string{}
		for t, v := range res {
			if v != Unknown {
				// A result that is missing and Unknown are the same.
				by[Type(t).String()] = v.String()
			}
		}
		f.Containers[id] = by
	}
	// It sorts the keys of maps: equal records are equal bytes, and need no
	// second write.
	out, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings and maps of them always can be
	}
	return out
}

// decode parses the output of encode. Any mistake makes the whole record invalid, since a record
// that is partly correct cannot be trusted.
func decode(b []byte) (record, error) {
	var f journalFile
	d := json.NewDecoder(bytes.NewReader(b))
	// An unknown field may change the meaning of the others.
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	// Such as the rest of a longer record that was overwritten in part.
	if d.More() {
		return nil, errors.New("there is data after the JSON value")
	}
	if f.Version != journalVersion {
		return nil, fmt.Errorf("version is %d; want %d", f.Version, journalVersion)
	}
	out := record{}
	for id, by := range f.Containers {
		if id == "" {
			return nil, errors.New("a container has no ID")
		}
		var res results
		for name, value := range by {
			t, r, err := parseResult(name, value)
			if err != nil {
				return nil, fmt.Errorf("container %q: %w", id, err)
			}
			res[t] = r
		}
		out[id] = res
	}
	return out, nil
}

// parseResult parses the names of a type and of a result. Unknown is an error, since it is never
// written.
func parseResult(name, value string) (Type, Result, error) {
	for t := range Type(types3) {
		for _, r := range []Result{Success, Failure} {
			if name == t.String() && value == r.String() {
				return t, r, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("result %q of probe %q: want %s or %s of Startup, Readiness or Liveness", value, name, Success, Failure)
}
