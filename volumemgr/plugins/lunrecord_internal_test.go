package plugins

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type namedNetwork struct{ lunNetwork }

func (namedNetwork) Name() string { return "kubernetes.io/iscsi" }

// A record of another version is rejected: its disk could be mistaken for another one.
func TestLUNRecordVersions(t *testing.T) {
	p := &lunPlugin{cfg: lunConfig{Root: t.TempDir(), Network: namedNetwork{}}}
	in := lunTarget{Key: "disk", Detail: json.RawMessage(`{"lun":1}`)}
	if err := p.write(in); err != nil {
		t.Fatal(err)
	}
	name := lunName(in)
	file := filepath.Join(p.disksDir(), name, recordOf)
	if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), `"version":1`) {
		t.Errorf("%s, %v", b, err)
	}
	for text, want := range map[string]string{
		`{"version":1,"key":"disk","detail":{"lun":1}}`: "",
		`{"key":"disk"}`:             "version is 0; want 1",
		`{"version":2,"key":"disk"}`: "version is 2; want 1",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := p.read(name)
		if want == "" && (err != nil || got.Key != "disk" || string(got.Detail) != `{"lun":1}`) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
