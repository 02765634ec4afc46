package sim

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/record"
)

var (
	recordFile = flag.String("record", "", "play a file of agent record export, step by step (TestRecord)")
	recordSave = flag.String("save", "", "keep the file of -record, without its names, as testdata/records/NAME.record")
)

// TestRecord makes the decisions of recorded nodes again: those in testdata, and those of -record. The
// code has to decide as it is recorded. To make a test case of a bug, correct the code, and then
// keep the record of the bug with the decisions of the corrected code: -record FILE -save NAME.
func TestRecord(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "records", "*.record"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".record"), func(t *testing.T) { playRecord(t, readRecord(t, path)) })
	}
	if *recordFile == "" {
		return
	}
	entries := readRecord(t, *recordFile)
	if *recordSave != "" {
		keepRecord(t, entries, filepath.Join("testdata", "records", *recordSave+".record"))
		return
	}
	playRecord(t, entries)
}

func readRecord(t *testing.T, path string) []record.Entry {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := record.ReadFile(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return entries
}

// playRecord prints each step with -v, and fails for those that are decided otherwise.
func playRecord(t *testing.T, entries []record.Entry) {
	t.Helper()
	steps := record.Replay(entries)
	if len(steps) == 0 {
		t.Error("there is no decision in it")
	}
	for i, s := range steps {
		t.Logf("%d: %s %s/%s: %s", i, s.At.Format("15:04:05.000"), s.Pod.Namespace, s.Pod.Name, s.Decision.Result.String())
		for _, d := range s.Differences {
			t.Errorf("step %d is decided otherwise: %s", i, d)
		}
	}
}

// keepRecord writes the decisions of entries with the results of today's code.
func keepRecord(t *testing.T, entries []record.Entry, path string) {
	t.Helper()
	var kept []record.Entry
	for _, e := range record.Anonymize(entries) {
		if d, ok := e.Fact.(*record.Decision); ok {
			d.Result = d.Again()
			kept = append(kept, e)
		}
	}
	var b bytes.Buffer
	if err := record.Write(&b, kept); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d decisions in %s", len(kept), path)
}
