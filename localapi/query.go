package localapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/httpbound"
)

// query is a request, as parsed from its method and its path.
type query struct {
	verb                  string
	group, version        string
	namespace, name       string
	resource, subresource string
	form                  *kind  // the kind that the client reads and writes; may be a view
	rest                  string // rest of the path below proxy
	values                url.Values
	user                  *User
	client                httpbound.Client // client to which slots and bytes are charged
	entered               *entered
	accept                accepted
	dryRun                bool
	validation, manager   string
	labels                labels.Selector
	fields                fields.Selector
	userAgent             string
}

// parse parses a path below /api or /apis. It returns false for a path that does not name
// objects.
func parse(path string) (q query, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		q.version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		q.group, q.version, parts = parts[1], parts[2], parts[3:]
	default:
		return q, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource = parts[0]
	if len(parts) > 1 {
		q.name = parts[1]
	}
	if q.resource == "namespaces" {
		q.namespace = q.name
	}
	if len(parts) > 2 {
		q.subresource = parts[2]
	}
	if len(parts) > 3 {
		q.rest = strings.Join(parts[3:], "/")
		if q.subresource != "proxy" {
			return q, false
		}
	}
	return q, q.resource != ""
}

// verbOf returns the API's verb for a request.
func verbOf(r *http.Request, q *query) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case q.name != "":
			return "get"
		case flag(q.values, "watch"):
			return "watch"
		default:
			return "list"
		}
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if q.name == "" {
			return "deletecollection"
		}
		return "delete"
	default:
		return strings.ToLower(r.Method)
	}
}

func flag(v url.Values, name string) bool {
	b, _ := strconv.ParseBool(v.Get(name))
	return b || v.Has(name) && v.Get(name) == ""
}

// options parses the query parameters that all verbs have in common.
func (q *query) options() error {
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		if err := checkSelector(name, q.values.Get(name)); err != nil {
			return err
		}
	}
	var err error
	if q.labels, err = labels.Parse(q.values.Get("labelSelector")); err != nil {
		return apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	if q.fields, err = fields.ParseSelector(q.values.Get("fieldSelector")); err != nil {
		return apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	if q.fields, err = q.form.selectable(q.fields); err != nil {
		return err
	}
	if q.verb == "list" || q.verb == "watch" {
		if errs := checkListOptions(q.values, q.verb == "watch"); len(errs) > 0 {
			return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", errs)
		}
	}
	for _, d := range q.values["dryRun"] {
		if d != "All" {
			return apierrors.NewBadRequest("dryRun is " + strconv.Quote(d) + "; want All")
		}
		q.dryRun = true
	}
	switch q.validation = q.values.Get("fieldValidation"); q.validation {
	case "":
		q.validation = "Warn"
	case "Ignore", "Warn", "Strict":
	default:
		return apierrors.NewBadRequest("fieldValidation is " + strconv.Quote(q.validation) + "; want Ignore, Warn or Strict")
	}
	q.manager = q.values.Get("fieldManager")
	if len(q.manager) > 128 {
		return apierrors.NewBadRequest("fieldManager has more than 128 bytes")
	}
	return nil
}

// checkListOptions returns the mistakes in the options about the start of a list or a watch
// (KEP-3157).
func checkListOptions(v url.Values, watch bool) (errs field.ErrorList) {
	const exact, notOlder = string(metav1.ResourceVersionMatchExact), string(metav1.ResourceVersionMatchNotOlderThan)
	at, initial := field.NewPath("resourceVersionMatch"), v.Has("sendInitialEvents")
	match, version := v.Get("resourceVersionMatch"), v.Get("resourceVersion")
	allowed := []string{exact, notOlder}
	if watch {
		allowed = []string{notOlder}
	}
	switch {
	case watch && initial && match != notOlder:
		errs = append(errs, field.Forbidden(at, "sendInitialEvents requires setting resourceVersionMatch to "+notOlder))
	case !watch && initial:
		errs = append(errs, field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list"))
	}
	if match == "" {
		return errs
	}
	switch {
	case !slices.Contains(allowed, match):
		errs = append(errs, field.NotSupported(at, match, allowed))
	case watch && !initial:
		errs = append(errs, field.Forbidden(at, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	case !watch && version == "":
		errs = append(errs, field.Forbidden(at, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
	case match == exact && version == "0":
		errs = append(errs, field.Forbidden(at, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
	}
	if v.Get("continue") != "" {
		errs = append(errs, field.Forbidden(at, "resourceVersionMatch is forbidden when continue is provided"))
	}
	return errs
}

// fieldManager returns the field manager of a request: its parameter, or else the name of the
// client program.
func (q *query) fieldManager() string {
	if q.manager != "" {
		return q.manager
	}
	name, _, _ := strings.Cut(q.userAgent, "/")
	if name == "" || len(name) > 128 {
		return "unknown"
	}
	return name
}
