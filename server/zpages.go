package server

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	semver "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// notForMachines is the heading of Kubernetes' z-pages.
const notForMachines = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n"

// zGroup is the API group of structured z-pages (KEP-4827, KEP-4828).
const zGroup = "config.k8s.io"

// flagz and statusz are the structured pages of v1beta1. Those of v1alpha1 have the same
// fields.
type flagz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Flags map[string]string `json:"flags,omitempty"`
}

// statusz has its fields in the order of the API.
type statusz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// StartTime is when New was called; UptimeSeconds counts from it.
	StartTime        metav1.Time `json:"startTime"`
	UptimeSeconds    int64       `json:"uptimeSeconds"`
	GoVersion        string      `json:"goVersion"`
	BinaryVersion    string      `json:"binaryVersion"`
	EmulationVersion string      `json:"emulationVersion,omitempty"`
	Paths            []string    `json:"paths"`
}

// form is a requested form of a page. version is the API version of the structured form, or ""
// for text.
type form struct {
	media   string // text/plain, application/json or application/yaml
	version string // version of the structured page
}

// wanted returns the form that an Accept header prefers, among the forms of a page of that kind.
// The default is text. It returns false if the page has no accepted form.
func wanted(accept, kind string) (form, bool) {
	if strings.TrimSpace(accept) == "" {
		return form{media: "text/plain"}, true
	}
	// A clause is one alternative of the header. q is its weight, from 0 to 1.
	type clause struct {
		form
		q float64
	}
	// Limited, since a header may have a megabyte.
	const most = 32 // limit of clauses
	var list []clause
	for part := range strings.SplitSeq(accept, ",") {
		if len(list) == most {
			break
		}
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		// An invalid clause is ignored (RFC 9110, section 12.5.1).
		if err != nil {
			continue
		}
		c := clause{q: 1}
		// An invalid weight counts as 1.
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.q = q
		}
		// A weight of 0 excludes the form.
		if c.q <= 0 {
			continue
		}
		switch {
		// Clients that accept anything get text.
		case media == "*/*" || media == "text/*" || media == "text/plain":
			c.media = "text/plain"
		// Structured pages need group, version and kind as parameters, since the format may
		// change with the version.
		case media != "application/json" && media != "application/yaml",
			params["as"] != kind || params["g"] != zGroup || params["v"] != "v1beta1" && params["v"] != "v1alpha1":
			continue
		default:
			c.form = form{media, params["v"]}
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return form{}, false
	}
	// Stable, so that among equals the client's order counts.
	slices.SortStableFunc(list, func(x, y clause) int {
		switch {
		case x.q > y.q:
			return -1
		case x.q < y.q:
			return 1
		}
		return 0
	})
	return list[0].form, true
}

// page sends a z-page in the requested form.
func page(w http.ResponseWriter, r *http.Request, kind string, text func(), structured func(metav1.TypeMeta, metav1.ObjectMeta) any) {
	f, ok := wanted(r.Header.Get("Accept"), kind)
	if !ok {
		http.Error(w, fmt.Sprintf("want Accept: text/plain, or application/json or application/yaml with ;g=%s;v=v1beta1;as=%s", zGroup, kind), http.StatusNotAcceptable)
		return
	}
	// Caches must not return one form for another.
	w.Header().Set("Vary", "Accept")
	if f.version == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		text()
		return
	}
	obj := structured(metav1.TypeMeta{APIVersion: zGroup + "/" + f.version, Kind: kind}, metav1.ObjectMeta{Name: "kubelet"})
	if f.media == "application/json" {
		writeJSON(w, obj)
		return
	}
	// YAML uses the JSON tags, so that both forms have the same fields.
	b, err := yaml.Marshal(obj)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(b) // an error means that the client has disconnected
}

// flagz answers with the program's flags (KEP-4828).
func (s *Server) flagz(w http.ResponseWriter, r *http.Request) {
	// Called each time, since some flags may change while the program runs.
	flags := s.cfg.Flags()
	page(w, r, "Flagz", func() {
		fmt.Fprintf(w, "\nkubelet flagz\n%s", notForMachines)
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			fmt.Fprintf(w, "%s=%s\n", name, flags[name])
		}
	}, func(t metav1.TypeMeta, m metav1.ObjectMeta) any { return flagz{t, m, flags} })
}

// statusz answers with the program's versions and paths (KEP-4827).
func (s *Server) statusz(w http.ResponseWriter, r *http.Request) {
	var paths []string
	// Only the first elements, since the rest of a path may contain the name of a pod.
	for _, r := range s.routes() {
		if p := "/" + firstElement(r.pattern); !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	emulates := ""
	// Without a valid version there is no line for it.
	if v, err := semver.ParseGeneric(s.cfg.Version); err == nil {
		emulates = fmt.Sprintf("%d.%d", v.Major(), v.Minor())
	}
	page(w, r, "Statusz", func() {
		fmt.Fprintf(w, "\nkubelet statusz\n%s", notForMachines)
		fmt.Fprintf(w, "Started: %s\nUp: %s\nGo version: %s\n", s.began.Format(time.UnixDate), time.Since(s.began).Round(time.Second), runtime.Version())
		if s.cfg.Version != "" {
			fmt.Fprintf(w, "Binary version: %s\nEmulation version: %s\n", s.cfg.Version, emulates)
		}
		fmt.Fprintf(w, "Paths: %s\n", strings.Join(paths, " "))
	}, func(t metav1.TypeMeta, m metav1.ObjectMeta) any {
		return statusz{t, m, metav1.NewTime(s.began), int64(time.Since(s.began).Seconds()), runtime.Version(), s.cfg.Version, emulates, paths}
	})
}
