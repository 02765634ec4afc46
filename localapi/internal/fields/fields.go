package fields

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const (
	// kubectl is the field manager of kubectl apply --server-side.
	kubectl = "kubectl"
	// maxUpdaters limits the entries for updates of an object, as in the API server; the oldest
	// are merged into one.
	maxUpdaters = 10
	ancient     = "ancient-changes"
	// before is the manager of the fields that existed before the first apply to an object
	// without managedFields.
	before = "before-first-apply"
)

// Config holds what a Manager needs. All fields but Subresource and Ignored are
// required.
type Config struct {
	Type        typed.ParseableType
	APIVersion  string // version of the kind, such as v1
	Subresource string
	// Ignored are fields that writers of this kind, or subresource, cannot change, whatever they
	// send.
	Ignored []fieldpath.Path
}

// Manager computes managedFields. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	updater *merge.Updater
}

// New returns a Manager.
func New(cfg Config) *Manager {
	b := merge.UpdaterBuilder{Converter: same{}}
	if len(cfg.Ignored) > 0 {
		b.IgnoreFilter = map[fieldpath.APIVersion]fieldpath.Filter{
			fieldpath.APIVersion(cfg.APIVersion): fieldpath.NewExcludeSetFilter(fieldpath.NewSet(cfg.Ignored...)),
		}
	}
	return &Manager{cfg: cfg, updater: b.BuildUpdater()}
}

// same is the converter for a single version.
type same struct{}

func (same) Convert(o *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return o, nil
}
func (same) IsMissingVersionError(error) bool { return false }

// unowned are fields that have no owner: they identify the object, or belong to the server.
var unowned = func() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, name := range []string{
		"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion",
		"deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		set.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	return set
}()

// Update returns the managedFields of an object that manager has changed from live to now. The
// parameter notes has the managedFields of live, or those that the writer sent. live may be nil.
// An object without managedFields gets none before the first apply; then the fields that existed
// before get an owner.
func (m *Manager) Update(live, now any, notes []metav1.ManagedFieldsEntry, manager string) ([]metav1.ManagedFieldsEntry, error) {
	n := decode(notes)
	if live == nil {
		live = map[string]any{}
	} else if len(n.sets) == 0 {
		return nil, nil
	}
	was, err := m.typed(live)
	if err != nil {
		return nil, err
	}
	is, err := m.typed(now)
	if err != nil {
		return nil, err
	}
	id := m.entry(manager, metav1.ManagedFieldsOperationUpdate)
	_, sets, err := m.updater.Update(was, is, fieldpath.APIVersion(m.cfg.APIVersion), n.sets.Copy(), id)
	if err != nil {
		return nil, err
	}
	return n.encode(sets, id), nil
}

// Apply merges an object that manager applies into live, both as JSON, and returns the result
// with its managedFields. A field that another manager owns with a different value is a conflict
// (409), unless force takes it over. Fields that kubectl has applied on the client's side also
// belong to its server-side manager. The annotation of these fields is updated, so that kubectl
// can return to client-side apply.
func (m *Manager) Apply(live, applied map[string]any, notes []metav1.ManagedFieldsEntry, manager string, force bool) (map[string]any, []metav1.ManagedFieldsEntry, error) {
	was, err := m.typed(live)
	if err != nil {
		return nil, nil, err
	}
	config, err := m.typed(applied)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("failed to merge: %v", err))
	}
	n := decode(notes)
	if len(n.sets) == 0 {
		empty, err := m.typed(map[string]any{})
		if err != nil {
			return nil, nil, err
		}
		if _, n.sets, err = m.updater.Update(empty, was, fieldpath.APIVersion(m.cfg.APIVersion), n.sets, m.entry(before, metav1.ManagedFieldsOperationUpdate)); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("failed to merge: %v", err))
		}
	}
	id := m.entry(manager, metav1.ManagedFieldsOperationApply)
	apply := func(force bool) (*typed.TypedValue, fieldpath.ManagedFields, error) {
		return m.updater.Apply(was, config, fieldpath.APIVersion(m.cfg.APIVersion), n.sets.Copy(), id, force)
	}
	merged, sets, err := apply(force)
	var conflicts merge.Conflicts
	if manager == kubectl && errors.As(err, &conflicts) {
		own := m.lastApplied(live, was)
		if conflicts = slices.DeleteFunc(conflicts, func(c merge.Conflict) bool { return own.Has(c.Path) }); len(conflicts) > 0 {
			return nil, nil, conflictOf(conflicts)
		}
		merged, sets, err = apply(true)
	}
	if err != nil {
		return nil, nil, conflictOf(err)
	}
	out := live
	if merged != nil {
		o, ok := merged.AsValue().Unstructured().(map[string]any)
		if !ok {
			return nil, nil, errors.New("merge: the result is not an object")
		}
		out = o
	}
	if manager == kubectl {
		setLastApplied(out, applied)
	}
	return out, n.encode(sets, id), nil
}

// typed returns an object with its schema. Lists with duplicate keys are accepted, since they may
// be older than the managedFields.
func (m *Manager) typed(o any) (*typed.TypedValue, error) {
	if u, ok := o.(map[string]any); ok {
		return m.cfg.Type.FromUnstructured(u, typed.AllowDuplicates)
	}
	return m.cfg.Type.FromStructured(o, typed.AllowDuplicates)
}

// conflictOf returns the conflict error of the API server, with the owners of the fields.
func conflictOf(err error) error {
	var all merge.Conflicts
	if !errors.As(err, &all) {
		return apierrors.NewBadRequest(fmt.Sprintf("failed to merge: %v", err))
	}
	var causes []metav1.StatusCause
	for _, c := range all {
		e := parseID(c.Manager)
		who := fmt.Sprintf("%q", e.Manager)
		if e.Subresource != "" {
			who += fmt.Sprintf(" with subresource %q", e.Subresource)
		}
		if e.Operation == metav1.ManagedFieldsOperationUpdate {
			who += " using " + e.APIVersion
		}
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + who, Field: c.Path.String(),
		})
	}
	slices.SortStableFunc(causes, func(a, b metav1.StatusCause) int {
		return cmp.Or(strings.Compare(a.Message, b.Message), strings.Compare(a.Field, b.Field))
	})
	if len(causes) == 1 {
		return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field))
	}
	var text strings.Builder
	for i, c := range causes {
		if i == 0 || c.Message != causes[i-1].Message {
			text.WriteString(strings.Replace(c.Message, "conflict", "conflicts", 1) + ":\n")
		}
		text.WriteString("- " + c.Field + "\n")
	}
	return apierrors.NewApplyConflict(causes, fmt.Sprintf("Apply failed with %d conflicts: %s", len(causes), strings.TrimSuffix(text.String(), "\n")))
}

// entry returns the text of idOf for an entry of a manager and an operation.
func (m *Manager) entry(manager string, op metav1.ManagedFieldsOperationType) string {
	return idOf(&metav1.ManagedFieldsEntry{Manager: manager, Operation: op, APIVersion: m.cfg.APIVersion, Subresource: m.cfg.Subresource})
}

// idOf returns a text that identifies an entry: everything except its time and its fields.
func idOf(e *metav1.ManagedFieldsEntry) string {
	return strings.Join([]string{string(e.Operation), e.APIVersion, e.Subresource, e.Manager}, "\x00")
}

func parseID(id string) metav1.ManagedFieldsEntry {
	p := strings.SplitN(id, "\x00", 4)
	return metav1.ManagedFieldsEntry{Operation: metav1.ManagedFieldsOperationType(p[0]), APIVersion: p[1], Subresource: p[2], Manager: p[3]}
}

// managedSets is the content of managedFields, as sets.
type managedSets struct {
	sets  fieldpath.ManagedFields
	times map[string]*metav1.Time
}

// decode decodes managedFields. As in the API server, entries that cannot be decoded are ignored,
// so that a client that writes such entries does not block others.
func decode(notes []metav1.ManagedFieldsEntry) managedSets {
	n := managedSets{sets: fieldpath.ManagedFields{}, times: map[string]*metav1.Time{}}
	for i := range notes {
		e := &notes[i]
		if e.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
			return managedSets{sets: fieldpath.ManagedFields{}, times: map[string]*metav1.Time{}}
		}
		id := idOf(e)
		n.sets[id] = fieldpath.NewVersionedSet(set, fieldpath.APIVersion(e.APIVersion), e.Operation == metav1.ManagedFieldsOperationApply)
		n.times[id] = e.Time
	}
	return n
}

// encode encodes managedFields in the API server's order: first applies, then updates by time. by
// is the entry of the current writer.
func (n *managedSets) encode(sets fieldpath.ManagedFields, by string) []metav1.ManagedFieldsEntry {
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	for id, s := range sets {
		kept := s.Set().Difference(unowned)
		if kept.Empty() {
			delete(sets, id)
			continue
		}
		sets[id] = fieldpath.NewVersionedSet(kept, s.APIVersion(), s.Applied())
		old, had := n.sets[id]
		if n.times[id] == nil || id == by && (!had || !old.Set().Equals(kept)) {
			n.times[id] = &now
		}
	}
	n.cap(sets)
	var out []metav1.ManagedFieldsEntry
	for id, s := range sets {
		e := parseID(id)
		raw, err := s.Set().ToJSON()
		if err != nil { // texts and numbers can always be encoded
			continue
		}
		e.FieldsType, e.FieldsV1, e.Time = "FieldsV1", metav1.NewFieldsV1(string(raw)), n.times[id]
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b metav1.ManagedFieldsEntry) int {
		if a.Operation != b.Operation {
			return strings.Compare(string(a.Operation), string(b.Operation))
		}
		if c := a.Time.Compare(b.Time.Time); c != 0 {
			return c
		}
		return strings.Compare(idOf(&a), idOf(&b))
	})
	return out
}

// cap merges the oldest updates into one entry if there are more than maxUpdaters.
func (n *managedSets) cap(sets fieldpath.ManagedFields) {
	var updates []string
	for id, s := range sets {
		if !s.Applied() {
			updates = append(updates, id)
		}
	}
	if len(updates) <= maxUpdaters {
		return
	}
	slices.SortFunc(updates, func(a, b string) int {
		if c := n.times[a].Compare(n.times[b].Time); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	first := parseID(updates[0])
	first.Manager, first.Subresource = ancient, ""
	into := idOf(&first)
	all, last := fieldpath.NewSet(), n.times[updates[0]]
	for _, id := range updates[:len(updates)-maxUpdaters+1] {
		all = all.Union(sets[id].Set())
		last = n.times[id]
		delete(sets, id)
	}
	if s, ok := sets[into]; ok {
		all = all.Union(s.Set())
	}
	sets[into] = fieldpath.NewVersionedSet(all, fieldpath.APIVersion(first.APIVersion), false)
	n.times[into] = last
}
