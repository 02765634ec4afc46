package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode"

	"k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/manifestguard"
)

const (
	kind       = "KubeletConfiguration"
	apiVersion = "kubelet.config.k8s.io/v1beta1"
)

// parseDocument parses the content b of one YAML or JSON file. It warns about unknown and repeated
// fields, as the kubelet does. Any other mistake is an error.
func parseDocument(path string, b []byte) (doc map[string]any, warnings []string, err error) {
	warn := func(format string, args ...any) {
		warnings = append(warnings, path+": "+fmt.Sprintf(format, args...))
	}
	doc, twice, err := decodeYAML(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if twice != "" {
		warn("%s: set more than once; the last value is used", twice)
	}
	if manifestguard.MoreDocuments(b) {
		warn("only the first YAML document is used")
	}
	if errs := costlyQuantities(doc); len(errs) > 0 {
		return nil, nil, atPath(path, errs)
	}
	unknown, err := decode(doc, new(v1beta1.KubeletConfiguration))
	if err != nil {
		errs := wrongFields(doc)
		if len(errs) == 0 { // no single field is invalid
			errs = []error{err}
		}
		return nil, nil, atPath(path, errs)
	}
	said := map[string]bool{}
	for _, u := range unknown { // the decoder lists at most a hundred
		warn("%v; it has no effect", u)
		said[u.Error()] = true
	}
	maps.DeleteFunc(doc, func(field string, _ any) bool { return said[fmt.Sprintf("unknown field %q", field)] })
	return doc, warnings, nil
}

// atPath joins errors, with the path of the file before each.
func atPath(path string, errs []error) error {
	for i := range errs {
		errs[i] = fmt.Errorf("%s: %w", path, errs[i])
	}
	return errors.Join(errs...)
}

// decodeYAML decodes the first document of b, which must be a KubeletConfiguration. twice are the
// paths of repeated fields, or "".
func decodeYAML(b []byte) (doc map[string]any, twice string, err error) {
	if err := manifestguard.Aliases(b, maxExpanded); err != nil {
		return nil, "", err
	}
	raw, keys, err := manifestguard.JSON(b)
	if err != nil {
		return nil, "", errors.New(oneLine(err.Error()))
	}
	twice = callerror.Cut(oneLine(strings.Join(keys, ", ")), 1000)
	if string(raw) == "null" {
		return nil, "", fmt.Errorf("the file is empty; want kind %s of apiVersion %s", kind, apiVersion)
	}
	doc = map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &doc); err != nil {
		return nil, "", fmt.Errorf("want a %s, got %.40q", kind, raw)
	}
	if doc["kind"] != kind || doc["apiVersion"] != apiVersion {
		return nil, "", fmt.Errorf("kind %s of apiVersion %s; want kind %s of apiVersion %s", show(doc["kind"]), show(doc["apiVersion"]), kind, apiVersion)
	}
	return doc, twice, nil
}

// decode decodes doc into c. unknown has an error for each unknown field. Names are
// case-sensitive, as in Kubernetes.
func decode(doc any, c *v1beta1.KubeletConfiguration) (unknown []error, err error) {
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return kjson.UnmarshalStrict(raw, c)
}

// oneLine replaces line breaks and control characters by blanks, so that a text from a file fits on
// one line of a log.
func oneLine(s string) string {
	blank := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }
	return strings.Join(strings.FieldsFunc(s, blank), " ")
}
