package localapi_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// Options that contradict each other are refused, and a watch that wants no initial events
// has none.
func TestListOptions(t *testing.T) {
	a := start(t, &store.Memory{})
	must[metav1.PartialObjectMetadata](a, "POST", configMaps, asJSON, configMap("one", "1"))
	for _, query := range []string{
		"watch=1&sendInitialEvents=true", "watch=1&sendInitialEvents=false&resourceVersionMatch=Exact", "watch=1&resourceVersionMatch=NotOlderThan",
		"sendInitialEvents=true", "resourceVersionMatch=Exact", "resourceVersionMatch=Exact&resourceVersion=0", "resourceVersionMatch=Foo&resourceVersion=1",
		"resourceVersionMatch=Exact&resourceVersion=1&continue=x",
	} {
		a.refused("GET", configMaps+"?"+query, "", "", 422, metav1.StatusReasonInvalid, "")
	}
	a.refused("PATCH", configMaps+"/one?force=true", "application/merge-patch+json", `{"data":{"k":"2"}}`, 422, metav1.StatusReasonInvalid, "may not be specified for non-apply patch")
	must[metav1.PartialObjectMetadata](a, "POST", configMaps, asJSON, configMap("two", "1"))
	list := must[metav1.PartialObjectMetadataList](a, "GET", configMaps+"?limit=1", "", nil)
	if list.Continue == "" {
		t.Fatal("there is no more")
	}
	a.refused("GET", configMaps+"?resourceVersion=1&continue="+list.Continue, "", "", 400, metav1.StatusReasonBadRequest, "not allowed when using continue")
	a.refused("GET", configMaps+"/one?resourceVersion=9999999", "", "", 504, metav1.StatusReasonTimeout, "Too large resource version")
	for _, version := range []string{"", "&resourceVersion=0"} {
		w := a.watch(configMaps + "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan" + version)
		name := "new" + string(rune('a'+len(version)))
		must[metav1.PartialObjectMetadata](a, "POST", configMaps, asJSON, configMap(name, "1"))
		w.next("ADDED " + name)
	}
}
