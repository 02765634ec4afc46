package podmgr

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/apicheck"
	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/manifestwords"
	"github.com/nodewright/nodewright/podmeta"
)

// origin describes the file or URL of documents. It is part of the pods' UIDs.
type origin struct {
	// nodeName is appended to the names of static pods, and is part of their UIDs.
	nodeName string
	file     string // path or URL
	url      bool
	plain    bool // pods get no UID, and no node name in their name
	hashed   bool // the UID of a pod is the hash of its document only: the document must not set it
}

// shown returns the file or URL for messages, without the credentials of a URL.
func (o origin) shown() string {
	if o.url {
		return shownURL(o.file)
	}
	return o.file
}

// decoded has the objects and problems of one file or HTTP body.
type decoded struct {
	pods    []*v1.Pod
	numbers map[*v1.Pod]int // document numbers of the pods
	// The objects other than pods are in the order of the documents, and have their namespaces.
	configMaps []*v1.ConfigMap
	secrets    []*v1.Secret
	claims     []*v1.PersistentVolumeClaim
	volumes    []*v1.PersistentVolume
	resources  []*resourceapi.ResourceClaim
	problems   []Problem // the first maxProblems, and one that says how many more there are
	// broken has the names of the objects with problems. An object without a name has the key "".
	broken map[string]bool
	// unnamed is the number of problems that are not in the field problems.
	unnamed int
	things  int // documents, and items of lists
	// doc is the document that is being decoded. tree has its fields; it is nil until they are
	// first needed. before is the number of lines in the file before the document.
	doc    []byte
	tree   *manifestwords.Document
	before int
	size   int // size of the decoded objects in bytes of memory
}

// objects returns the number of objects other than pods.
func (d *decoded) objects() int {
	return len(d.configMaps) + len(d.secrets) + len(d.claims) + len(d.volumes) + len(d.resources)
}

// Decode decodes a manifest, YAML or JSON with one or more documents, with the limits, defaults
// and checks of [Directory]. The pods are in the manifest's order. They have no UID, no node name
// and no annotations of static pods, so that they can be sent to an API server. Decode opens no
// file: name is only used as the File of Problems.
func Decode(name string, manifest []byte) Snapshot {
	d := decode(manifest, origin{file: name, plain: true})
	return Snapshot{
		Pods: d.pods, ConfigMaps: d.configMaps, Secrets: d.secrets, Claims: d.claims, Volumes: d.volumes, ResourceClaims: d.resources,
		Problems: d.problems,
	}
}

// ManifestFile is a manifest, with the name that its pods' UIDs and Problems have.
type ManifestFile struct {
	Name string
	Data []byte
}

// DecodeStatic decodes manifests for a [Source] of static pods, with the limits and checks of
// [Directory]. The pods get the names, UIDs and annotations that Directory gives to pods of files
// with these names on the node nodeName. A pod whose document has not changed has the same UID in
// each release of this module. A document that sets metadata.uid is a Problem: a changed pod would
// have the UID of the pod that it replaces. No two files may have the same name.
func DecodeStatic(files []ManifestFile, nodeName string) Snapshot {
	d := directory{cfg: DirectoryConfig{NodeName: nodeName}, files: map[string]*manifest{}}
	for _, f := range files {
		now := decode(f.Data, origin{nodeName: nodeName, file: f.Name, hashed: true})
		if d.size+now.size > maxDirectory {
			now = decoded{problems: []Problem{{File: f.Name, Reason: tooMuch}}}
		}
		d.set(f.Name, &manifest{good: now, problems: now.problems})
	}
	s := d.snapshot()
	for i := range s.Problems {
		s.Problems[i].Source = ""
	}
	return s
}

// decode decodes all documents of a manifest, YAML or JSON. It returns the valid objects and the
// problems of the others.
func decode(data []byte, o origin) decoded {
	out := decoded{numbers: map[*v1.Pod]int{}}
	docs, all := documents(data, maxThings)
	for i, doc := range docs {
		out.doc, out.tree = doc, nil
		out.document(doc, o, i+1)
		out.before += bytes.Count(doc, []byte("\n"))
	}
	out.doc, out.tree = nil, nil
	if !all {
		// Document 0 means that the problem concerns the whole file.
		out.problem(o, 0, "", "", fmt.Sprintf("has more than %d documents; the others are not read", maxThings))
	}
	if out.unnamed > 0 {
		// Appended here, since problem would count it among those that are left out.
		out.problems = append(out.problems, Problem{File: o.shown(), Reason: fmt.Sprintf("and %d more problems", out.unnamed)})
	}
	return out
}

// documents splits YAML at its document markers, and reports whether there are at most limit
// documents. Empty documents keep their number; the caller skips them. The text is split before
// it is decoded, since a YAML decoder stops at the first broken document.
func documents(data []byte, limit int) (docs [][]byte, all bool) {
	var doc []byte
	begun := false
	for line := range bytes.Lines(data) {
		trimmed := bytes.TrimRight(line, " \t\r\n")
		// A marker may have blanks, a comment or content
		// behind it (YAML 1.2, document markers).
		if bytes.Equal(trimmed, []byte("---")) || bytes.HasPrefix(line, []byte("--- ")) {
			if len(docs) == limit {
				return docs, false
			}
			if begun || !blank(doc) { // the first marker may only begin the first document
				docs = append(docs, doc)
			}
			doc, begun = nil, true
			// Content behind the marker belongs to the new document.
			line = line[3:]
		}
		doc = append(doc, line...)
	}
	// Comments behind the last allowed document are not one more document.
	if len(docs) == limit && !blank(doc) {
		return docs, false
	}
	return append(docs, doc), true
}

// blank reports whether a document has nothing but comments. Such documents are no
// mistake: templates leave them behind.
func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if t := bytes.TrimSpace(line); len(t) > 0 && t[0] != '#' {
			return false
		}
	}
	return true
}

// Kinds of objects beside pods, ConfigMaps and Secrets.
const (
	kindClaim  = "PersistentVolumeClaim"
	kindVolume = "PersistentVolume"
)

// knownKinds are the kinds that a manifest may contain.
var knownKinds = []string{"Pod", "ConfigMap", "Secret", kindVolume, kindClaim, "ResourceClaim", "List"}

// header has the fields that all objects share. It is decoded before the type is known, and
// ignores unknown fields; these are found when the object is decoded into its type.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// document decodes the n-th document of the manifest. The order of the checks matters: each
// limits the cost of the next.
func (d *decoded) document(doc []byte, o origin, n int) {
	if blank(doc) {
		return
	}
	if reason := tooCostly(doc); reason != "" {
		d.problem(o, n, "", "", reason)
		return
	}
	raw, twice, err := manifestguard.JSON(doc)
	if err != nil {
		line, words := manifestwords.YAML(doc, err)
		d.problemAt(o, n, line, "", "", words)
		return
	}
	// A key that is there twice is a mistake, where otherwise the last one would count.
	for _, key := range twice {
		d.problem(o, n, "", key, "is set twice")
	}
	if twice != nil {
		return
	}
	// A document with a marker and nothing else, or null, is empty as well.
	if string(raw) == "null" {
		return
	}
	// Decoders recurse, so the depth is bounded before one of them sees the object.
	if depth := manifestguard.ShapeOf(raw).Depth; depth > maxDepth {
		d.problem(o, n, "", "", fmt.Sprintf("is nested %d levels deep; want at most %d", depth, maxDepth))
		return
	}
	d.object(raw, o, n)
}

// object decodes one object of the n-th document. It is called for each item of a list too, so
// that maxThings also limits items, and maxDepth also limits nested lists.
func (d *decoded) object(raw []byte, o origin, n int) {
	if d.things++; d.things > maxThings {
		d.problem(o, n, "", "", fmt.Sprintf("object is not read: the file has more than %d objects", maxThings))
		return
	}
	// The decoder would say the same in terms of Go types.
	if what := notObject(raw); what != "" {
		d.problem(o, n, "", "", "is "+what+"; want an object with apiVersion and kind")
		return
	}
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		d.problem(o, n, "", "", "not a Kubernetes object: "+plainJSON(err))
		return
	}
	// name has the same form as the results of asWritten and objectName, since keep finds the older
	// version of a broken object by it.
	name := h.Metadata.Name
	if name != "" && h.Kind != kindVolume { // which is in no namespace
		name = orDefault(h.Metadata.Namespace) + "/" + name
	}
	version := "v1"
	if h.Kind == "ResourceClaim" {
		version = claimVersion
	}
	switch instead := manifestwords.Instead(h.Kind); {
	case instead != "":
		d.problem(o, n, name, "kind", instead)
		return
	case h.APIVersion == "" && h.Kind == "":
		var all map[string]json.RawMessage
		if json.Unmarshal(raw, &all) == nil {
			if words := manifestwords.Foreign(slices.Collect(maps.Keys(all))); words != "" {
				d.problem(o, n, name, "", words)
				return
			}
		}
	}
	if h.APIVersion != version {
		d.problem(o, n, name, "apiVersion", fmt.Sprintf("%.100q is not supported; want %s", h.APIVersion, version))
		return
	}
	// Each kind is decoded strictly and checked for names
	// that are unsafe in paths, before it counts.
	switch h.Kind {
	case "Pod":
		d.pod(raw, o, n, name)
	case "ConfigMap":
		c := &v1.ConfigMap{}
		if d.strict(raw, c, o, n, name) && d.named(&c.ObjectMeta, o, n, name) {
			c.Namespace = orDefault(c.Namespace)
			d.configMaps = append(d.configMaps, c)
		}
	case "Secret":
		s := &v1.Secret{}
		if d.strict(raw, s, o, n, name) && d.named(&s.ObjectMeta, o, n, name) {
			s.Namespace = orDefault(s.Namespace)
			d.secrets = append(d.secrets, s)
		}
	case kindClaim:
		c := &v1.PersistentVolumeClaim{}
		if d.strict(raw, c, o, n, name) && d.named(&c.ObjectMeta, o, n, name) {
			c.Namespace = orDefault(c.Namespace)
			d.claims = append(d.claims, c)
		}
	case kindVolume:
		pv := &v1.PersistentVolume{}
		if d.strict(raw, pv, o, n, name) && d.named(&pv.ObjectMeta, o, n, name) && d.oneSource(pv, o, n) {
			// The API server ignores a namespace here, too.
			pv.Namespace = ""
			d.volumes = append(d.volumes, pv)
		}
	case "ResourceClaim":
		d.claim(raw, o, n, name)
	case "List", "PodList":
		// Items stay raw, so that a broken one leaves the others in effect.
		var l struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(raw, &l); err != nil {
			d.problem(o, n, "", "items", plainJSON(err))
			return
		}
		for _, item := range l.Items {
			d.object(withKind(item, h.Kind), o, n)
		}
	case "":
		d.problem(o, n, name, "kind", "is missing; "+manifestwords.Kind("", knownKinds))
	default:
		d.problem(o, n, name, "kind", fmt.Sprintf("%.100q is not supported; %s", h.Kind, manifestwords.Kind(h.Kind, knownKinds)))
	}
}

// notObject returns the kind of a JSON value, such as "a list", or "" for an object. It looks at
// the first byte only, since the text is valid JSON.
func notObject(raw []byte) string {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || raw[0] == '{':
		return ""
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 'n':
		return "null"
	case raw[0] == 't' || raw[0] == 'f':
		return "a boolean"
	default:
		return "a number"
	}
}

// withKind adds kind and apiVersion to an item of a typed list such as PodList: an API server
// omits them there. An item that is no object is returned unchanged; object refuses it.
func withKind(item json.RawMessage, list string) []byte {
	if list != "PodList" {
		return item
	}
	m := map[string]json.RawMessage{}
	if json.Unmarshal(item, &m) != nil || m == nil || m["kind"] != nil { // null leaves no map
		return item
	}
	m["kind"], m["apiVersion"] = json.RawMessage(`"Pod"`), json.RawMessage(`"v1"`)
	b, err := json.Marshal(m)
	if err != nil {
		return item
	}
	return b
}

// plainJSON rewrites an error of the JSON decoder in terms of the document, without names of Go
// types.
func plainJSON(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) && t.Field != "" {
		return fmt.Sprintf("%s is a %s; want %s", t.Field, t.Value, t.Type)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// strict decodes an object and reports unknown fields as problems. If they were ignored, a pod
// with a misspelt securityContext would run with less protection than requested. If it returns
// false, into must not be used.
func (d *decoded) strict(raw []byte, into any, o origin, n int, name string) bool {
	// On the text, since decoding is what takes the memory.
	if !d.affordable(raw, into, o, n, name) {
		return false
	}
	unknown, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		if path, words, ok := manifestwords.Decoding(raw, err); ok {
			d.problem(o, n, name, path, words)
		} else {
			d.problem(o, n, name, "", plainJSON(err))
		}
		return false
	}
	for _, u := range unknown {
		field := ""
		reason := u.Error()
		// A Problem has the path in a field of its own: it is cut out of the text.
		if f := kjson.FieldError(nil); errors.As(u, &f) {
			field = f.FieldPath()
			reason = strings.TrimSpace(strings.ReplaceAll(reason, fmt.Sprintf("%q", field), ""))
			if meant := manifestwords.Meant(reflect.TypeOf(into), field); meant != "" {
				reason += "; did you mean " + meant + "?"
			}
		}
		d.problem(o, n, name, field, reason)
	}
	return len(unknown) == 0
}

// oneSource reports whether a PersistentVolume has exactly one source with its required fields, as
// the API server demands. If not, it records the problems.
func (d *decoded) oneSource(pv *v1.PersistentVolume, o origin, n int) bool {
	errs := apicheck.Sources(pv.Name, pv.Spec.PersistentVolumeSource, field.NewPath("spec"))
	for _, e := range errs {
		d.problem(o, n, pv.Name, e.Field, cmp.Or(e.Detail, e.ErrorBody()))
	}
	return len(errs) == 0
}

// orDefault returns the namespace that the API server gives an object without one.
func orDefault(namespace string) string {
	if namespace == "" {
		return v1.NamespaceDefault
	}
	return namespace
}

// pod decodes a Pod. makeStatic comes before validation, so that the pod is validated as it will
// run.
func (d *decoded) pod(raw []byte, o origin, n int, name string) {
	p := &v1.Pod{}
	if !d.strict(raw, p, o, n, name) || !d.pathSafe(&p.ObjectMeta, o, n, name) {
		return
	}
	if o.hashed && p.UID != "" {
		d.problem(o, n, name, "metadata.uid", "is set; want none")
		return
	}
	// Decode's pods are for an API server, which gives them their UIDs.
	if !o.plain {
		makeStatic(p, raw, o)
	}
	Default(p)
	errs := validatePod(p)
	// The API has them in a subresource, never in a pod that is created.
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "ephemeralContainers"), "may not be in a manifest"))
	}
	// For the same reason a missing UID is no mistake of theirs.
	if o.plain && p.UID == "" {
		errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Field == "metadata.uid" })
	}
	if len(errs) > 0 {
		for _, e := range errs {
			d.problem(o, n, name, e.Field, d.mistake(e, p, o))
		}
		return
	}
	d.pods = append(d.pods, p)
	// For problems that snapshot finds later, such
	// as a name that another file has already.
	d.numbers[p] = n
}

// mistake returns the text of a mistake that validation found.
func (d *decoded) mistake(e *field.Error, p *v1.Pod, o origin) string {
	switch {
	case e.Field == "metadata.name" && p.Name == "":
		return "is missing"
	case e.Field == "metadata.name" && e.Type == field.ErrorTypeInvalid && !o.plain:
		// As it is written, without the node's name, which nobody wrote.
		written := strings.TrimSuffix(p.Name, "-"+strings.ToLower(o.nodeName))
		return fmt.Sprintf("%q: want small letters, digits, - and ., such as %q", written, dnsName(written))
	case e.Type == field.ErrorTypeNotFound && strings.HasSuffix(e.Field, "].name") && strings.Contains(e.Field, "volumeMounts"):
		names := make([]string, 0, len(p.Spec.Volumes))
		for i := range p.Spec.Volumes {
			names = append(names, p.Spec.Volumes[i].Name)
		}
		if len(names) == 0 {
			return fmt.Sprintf("%q is not a volume of spec.volumes, which is empty", e.BadValue)
		}
		words := fmt.Sprintf("%q is not a volume of spec.volumes, which has %s", e.BadValue, strings.Join(names, ", "))
		if near := manifestwords.Nearest(fmt.Sprint(e.BadValue), names); near != "" {
			words += "; did you mean " + near + "?"
		}
		return words
	default:
		return e.ErrorBody()
	}
}

// dnsName returns a valid pod name that is similar to s, which an error proposes to the user.
func dnsName(s string) string {
	return cmp.Or(strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		default:
			return '-'
		}
	}, strings.ToLower(s)), "-."), "web")
}

// makeStatic sets the name, UID and annotations of a pod from a manifest, as the kubelet does. If
// the manifest has no UID, the UID is a hash of the document, the node name and the path or URL.
// The hash covers the document as written, so a new version of this library computes the same UID.
func makeStatic(p *v1.Pod, raw []byte, o origin) {
	if p.UID == "" {
		// The kubelet hashes with FNV-128a as well, but the decoded
		// Go value: the sums differ, see [directory.identify].
		h := fnv.New128a()
		_, _ = h.Write(canonical(raw))
		_, _ = fmt.Fprintf(h, "host:%s", o.nodeName)
		if o.url {
			// With credentials, if the URL has any: nothing but the sum leaves this place.
			_, _ = fmt.Fprintf(h, "url:%s", o.file)
		} else {
			_, _ = fmt.Fprintf(h, "file:%s", o.file)
		}
		p.UID = types.UID(hex.EncodeToString(h.Sum(nil)))
	}
	// A pod without a name keeps none, for validation to refuse it. Names of pods are in
	// lower case (RFC 1123); the name given to the agent may have capitals.
	if p.Name != "" {
		p.Name += "-" + strings.ToLower(o.nodeName)
	}
	p.Spec.NodeName = o.nodeName
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	// A mirror pod is compared with its static pod by this annotation.
	p.Annotations[podmeta.AnnotationHash] = string(p.UID)
	// Taints must not end a pod that only its file can start
	// again. The kubelet does the same, for files alone.
	if !o.url {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{
			Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute,
		})
	}
	// A status in a manifest is nobody's observation.
	p.Status = v1.PodStatus{Phase: v1.PodPending}
}

// canonical returns JSON with sorted keys, so that key order and white space do not change the
// UID. Text that cannot be decoded is returned unchanged.
func canonical(raw []byte) []byte {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	// As floating-point numbers, large integers that differ would become equal.
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return raw
	}
	b, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return b
}
