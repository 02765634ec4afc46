package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte(`[{"SpecReports": [
{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed", "RunTime": 5},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "runs [NodeConformance]", "LeafNodeType": "It", "State": "passed", "RunTime": 5},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "stops", "LeafNodeType": "It", "State": "failed", "RunTime": 5, "Failure": {"Message": "it\nruns"}},
{"ContainerHierarchyTexts": ["[sig-node] [Feature:X] Pods [Serial]"], "LeafNodeText": "needs more", "LeafNodeType": "It", "State": "skipped", "RunTime": 5},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "was left out", "LeafNodeType": "It", "State": "skipped"},
{"ContainerHierarchyTexts": ["External Storage [Driver: d]", "[Testpattern: Dynamic PV (default fs)] volumes"], "LeafNodeText": "keeps data", "LeafNodeType": "It", "State": "passed", "RunTime": 5},
{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "is not written", "LeafNodeType": "It", "State": "pending"}
]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	specs, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if !printTable(&out, specs) {
		t.Error("nothing has failed")
	}
	const want = `FAILED: [sig-node] Pods stops
    it
    runs
  passed  failed  skipped    
       1       1        1    Pods
       1       0        0    volumes
       2       1        1    all
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestReportMissing(t *testing.T) {
	if _, err := readReport(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a report that is missing is no error")
	}
}
