//! The standard library's atomics, each access entered. Same size, same place, same meaning.

use std::sync::atomic::{self, Ordering};

use super::{Kind, enter};

macro_rules! counted {
    ($name:ident, $word:ty) => {
        /// The standard library's atomic of this name; each access is entered in the books.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            pub const fn new(value: $word) -> Self {
                Self(atomic::$name::new(value))
            }

            #[track_caller]
            pub fn load(&self, ordering: Ordering) -> $word {
                self.entered(Kind::Load, self.0.load(ordering))
            }

            #[track_caller]
            pub fn store(&self, value: $word, ordering: Ordering) {
                self.entered(Kind::Store, self.0.store(value, ordering))
            }

            #[track_caller]
            pub fn swap(&self, value: $word, ordering: Ordering) -> $word {
                self.entered(Kind::Rmw, self.0.swap(value, ordering))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $word,
                new: $word,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$word, $word> {
                let done = self.0.compare_exchange(current, new, success, failure);
                self.entered(if done.is_ok() { Kind::Rmw } else { Kind::Failed }, done)
            }

            /// Fails only where the value differs, so that the counts are the same on each machine.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $word,
                new: $word,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$word, $word> {
                self.compare_exchange(current, new, success, failure)
            }

            #[track_caller]
            pub fn fetch_and(&self, value: $word, ordering: Ordering) -> $word {
                self.entered(Kind::Rmw, self.0.fetch_and(value, ordering))
            }

            #[track_caller]
            pub fn fetch_or(&self, value: $word, ordering: Ordering) -> $word {
                self.entered(Kind::Rmw, self.0.fetch_or(value, ordering))
            }

            /// Not entered: the owner of a `&mut` shares it with no other thread.
            pub fn get_mut(&mut self) -> &mut $word {
                self.0.get_mut()
            }

            /// Not entered, as `get_mut`.
            pub fn into_inner(self) -> $word {
                self.0.into_inner()
            }

            #[track_caller]
            fn entered<R>(&self, kind: Kind, done: R) -> R {
                enter((&raw const self.0).addr(), size_of::<$word>(), kind);
                done
            }
        }
    };
}

macro_rules! counted_number {
    ($name:ident, $word:ty) => {
        counted!($name, $word);

        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            #[track_caller]
            pub fn fetch_add(&self, value: $word, ordering: Ordering) -> $word {
                self.entered(Kind::Rmw, self.0.fetch_add(value, ordering))
            }

            #[track_caller]
            pub fn fetch_sub(&self, value: $word, ordering: Ordering) -> $word {
                self.entered(Kind::Rmw, self.0.fetch_sub(value, ordering))
            }

            #[track_caller]
            pub fn fetch_max(&self, value: $word, ordering: Ordering) -> $word {
                self.entered(Kind::Rmw, self.0.fetch_max(value, ordering))
            }

            #[track_caller]
            pub fn fetch_min(&self, value: $word, ordering: Ordering) -> $word {
                self.entered(Kind::Rmw, self.0.fetch_min(value, ordering))
            }
        }
    };
}

counted!(AtomicBool, bool);
counted_number!(AtomicU16, u16);
counted_number!(AtomicU32, u32);
counted_number!(AtomicU64, u64);
counted_number!(AtomicUsize, usize);
