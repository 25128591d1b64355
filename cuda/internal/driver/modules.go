package driver

import (
	"errors"
	"sync"
)

// Modules are modules by name. Several are loaded at the same time, each by one of those who ask for it. The zero value has none.
type Modules struct {
	mu  sync.Mutex
	all map[string]*loading
}

// A loading is a module that is being loaded, or was.
type loading struct {
	done   chan struct{}
	module Module
	err    error
}

// Once returns a module: the one loaded, or that of whoever loads it just now, or what load returns. After an error who asks next
// tries again; no module is kept as any other, for what is known not to be there.
func (m *Modules) Once(name string, load func() (Module, error)) (Module, error) {
	m.mu.Lock()
	l, ok := m.all[name]
	if !ok {
		l = &loading{done: make(chan struct{})}
		if m.all == nil {
			m.all = make(map[string]*loading)
		}
		m.all[name] = l
	}
	m.mu.Unlock()
	if !ok {
		l.module, l.err = load()
		close(l.done)
	}
	<-l.done
	if l.err == nil {
		return l.module, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[name] == l {
		delete(m.all, name)
	}
	return 0, l.err
}

// Unload gives all modules back, by a function for one. Nobody asks for any meanwhile or later.
func (m *Modules) Unload(one func(Module) error) error {
	var errs []error
	for _, l := range m.all {
		if <-l.done; l.err == nil && l.module != 0 {
			errs = append(errs, one(l.module))
		}
	}
	return errors.Join(errs...)
}
