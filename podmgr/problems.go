package podmgr

import (
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"
)

// maxListed limits the problems that are listed for a source, over all files.
const maxListed = 1000

// bounded returns at most maxProblems problems of each file and maxListed in total, with
// shortened texts. The number of omitted problems is added as another problem. A custom source
// may report any number of problems, of any length.
func bounded(source string, all []Problem) []Problem {
	var out []Problem
	kept, more, files := map[string]int{}, map[string]int{}, []string(nil)
	for _, p := range all {
		p.Source, p.File = source, inOneLine(p.File)
		// One more than maxProblems is the number of those left out before.
		if kept[p.File] > maxProblems || len(out) >= maxListed {
			file := p.File
			if kept[file] == 0 {
				file = "" // not one of it is told
			}
			// In the order of the files, so that the result is deterministic.
			if more[file]++; more[file] == 1 {
				files = append(files, file)
			}
			continue
		}
		kept[p.File]++
		p.Pod, p.Field, p.Reason = inOneLine(p.Pod), inOneLine(p.Field), inOneLine(p.Reason)
		out = append(out, p)
	}
	for _, file := range files {
		out = append(out, Problem{Source: source, File: file, Reason: fmt.Sprintf("and %d more problems", more[file])})
	}
	return out
}

// Problems returns the objects that are not in effect and why, sorted by source, file and
// document. For a file with many problems it returns the first ones and the number of the
// others. The caller owns the slice.
func (m *Manager) Problems() []Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Problem
	for _, s := range m.cfg.Sources {
		st := m.sources[s.Name()]
		if st.failure != "" {
			out = append(out, Problem{Source: s.Name(), Reason: "source of pods failed: " + st.failure, Kept: st.delivered})
		}
		out = append(out, st.snapshot.Problems...)
	}
	// Pods that wait for a name are compared anew: another pod may hold it by now.
	for _, s := range m.cfg.Sources {
		st := m.sources[s.Name()]
		out = append(out, st.refused...)
		for i, p := range st.waiting {
			if i == maxProblems {
				out = append(out, Problem{Source: s.Name(), Reason: fmt.Sprintf("and %d more problems", len(st.waiting)-i)})
				break
			}
			if c, ok := m.clash(s.Name(), st, p); ok {
				out = append(out, c)
			}
		}
	}
	return out
}

// logProblems logs the files whose problems have changed: the new problems of a file in one line,
// or that the file has no more problems.
func (m *Manager) logProblems(old, now []Problem) {
	were, are := byFile(old), byFile(now)
	for _, file := range slices.Sorted(maps.Keys(are)) {
		list := are[file]
		if slices.Equal(were[file], list) {
			continue
		}
		texts, kept := make([]string, 0, len(list)), false
		for _, p := range list {
			kept = kept || p.Kept
			// A field of the log line has the file.
			p.File = ""
			texts = append(texts, p.Error())
		}
		m.cfg.Log.Warn("manifest is not in effect", zap.String("source", list[0].Source), zap.String("file", file),
			zap.Strings("problems", texts), zap.Bool("lastGoodKept", kept))
		if m.cfg.Mistakes != nil {
			m.cfg.Mistakes(file, slices.Clone(list))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(were)) {
		if are[file] == nil {
			m.cfg.Log.Info("manifest is valid again", zap.String("source", were[file][0].Source), zap.String("file", file))
			if m.cfg.Mistakes != nil {
				m.cfg.Mistakes(file, nil)
			}
		}
	}
}

// byFile groups problems by file and keeps their order.
func byFile(list []Problem) map[string][]Problem {
	out := map[string][]Problem{}
	for _, p := range list {
		out[p.File] = append(out[p.File], p)
	}
	return out
}
