package differences_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/differences"
)

//go:generate go test -run TestDocument -write

var write = flag.Bool("write", false, "write docs/kubelet-differences.md")

const document = "../../docs/kubelet-differences.md"

// The document says what the program says.
func TestDocument(t *testing.T) {
	want := differences.Markdown()
	if *write {
		if err := os.WriteFile(document, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what internal/differences says; go generate ./internal/differences", document)
	}
	var out bytes.Buffer
	if err := differences.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, a := range differences.All() {
		if len(a.Differences) == 0 || !strings.Contains(out.String(), a.Name+"\n") {
			t.Errorf("area %q", a.Name)
		}
		for _, d := range a.Differences {
			if !strings.Contains(out.String(), d.What) || !strings.Contains(out.String(), d.Why) || !strings.HasSuffix(d.What, ".") || !strings.HasSuffix(d.Why, ".") || strings.Contains(d.What+d.Why, "\n") {
				t.Errorf("%q", d.What)
			}
		}
	}
}
