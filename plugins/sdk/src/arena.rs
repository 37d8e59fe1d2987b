//! An allocator for instances that live for one request.
//!
//! It hands out consecutive pieces of a static block and gives nothing back, since the whole
//! memory is thrown away with the instance a few microseconds later. What matters is that an
//! ordinary request fits into the block: a call of `memory.grow` costs the host a change of
//! page protection, several times what the rest of the call costs, and with several threads
//! those changes queue up behind one another. A request that needs more than the block still
//! works, by growing.

use core::alloc::Layout;

const PAGE_BYTES: usize = 64 * 1024;

/// Where the next piece starts and where the room ends, as addresses.
#[derive(Clone, Copy)]
struct Bump {
    next: usize,
    end: usize,
}

impl Bump {
    /// The address of a piece, if it fits.
    fn take(&mut self, layout: Layout) -> Option<usize> {
        let start = self.next.checked_next_multiple_of(layout.align())?;
        let next = start.checked_add(layout.size())?;
        if next > self.end {
            return None;
        }
        self.next = next;
        Some(start)
    }

    /// Lets the newest piece become larger or smaller where it is. Growing a `Vec` step by step
    /// would otherwise leave every earlier version behind.
    fn resize_newest(&mut self, start: usize, old_size: usize, new_size: usize) -> bool {
        let newest = start.checked_add(old_size) == Some(self.next);
        match start.checked_add(new_size) {
            Some(next) if newest && next <= self.end => {
                self.next = next;
                true
            }
            _ => false,
        }
    }

    /// Adds a region: directly behind the old one it continues it, anywhere else it replaces
    /// what was left.
    fn add(&mut self, start: usize, bytes: usize) {
        if start != self.end {
            self.next = start;
        }
        self.end = start + bytes;
    }
}

/// How many pages to ask for so that `layout` certainly fits. Generous, so that a large value
/// read in steps does not grow memory at each.
fn pages_for(layout: Layout) -> Option<usize> {
    let bytes = layout.size().checked_add(layout.align())?;
    Some(bytes.div_ceil(PAGE_BYTES).max(4))
}

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)]
mod global {
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::{memory_grow, memory_size};
    use core::cell::{Cell, UnsafeCell};
    use core::ptr;

    use super::{Bump, PAGE_BYTES, pages_for};

    /// The block. With the stack and the data of a small guest it comes to two pages of memory,
    /// which the gateway resets by writing instead of by a system call.
    const BLOCK_BYTES: usize = 64 * 1024;

    #[repr(align(16))]
    struct Block(UnsafeCell<[u8; BLOCK_BYTES]>);

    struct Arena(Cell<Bump>);

    // SAFETY: components of this interface have no threads.
    unsafe impl Sync for Block {}
    // SAFETY: as above.
    unsafe impl Sync for Arena {}

    static BLOCK: Block = Block(UnsafeCell::new([0; BLOCK_BYTES]));

    #[global_allocator]
    static ARENA: Arena = Arena(Cell::new(Bump { next: 0, end: 0 }));

    impl Arena {
        fn take(&self, layout: Layout) -> Option<usize> {
            let mut bump = self.0.get();
            if bump.end == 0 {
                bump.add(BLOCK.0.get() as usize, BLOCK_BYTES);
            }
            let start = bump.take(layout).or_else(|| {
                let pages = pages_for(layout)?;
                let before = memory_grow(0, pages);
                if before == usize::MAX {
                    return None;
                }
                debug_assert_eq!(before + pages, memory_size(0));
                bump.add(before * PAGE_BYTES, pages * PAGE_BYTES);
                bump.take(layout)
            });
            self.0.set(bump);
            start
        }
    }

    // SAFETY: every piece lies inside the block or inside pages this allocator asked for, is
    // aligned by `take`, and overlaps no other, because `next` only moves forward past it; it
    // moves back only in `resize_newest`, for the newest piece, at its owner's request.
    unsafe impl GlobalAlloc for Arena {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.take(layout).map_or(ptr::null_mut(), |start| start as *mut u8)
        }

        unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
            let mut bump = self.0.get();
            bump.resize_newest(piece as usize, layout.size(), 0);
            self.0.set(bump);
        }

        unsafe fn realloc(&self, piece: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            let mut bump = self.0.get();
            if bump.resize_newest(piece as usize, layout.size(), new_size) {
                self.0.set(bump);
                return piece;
            }
            if new_size <= layout.size() {
                return piece;
            }
            // SAFETY: the caller guarantees that the alignment is valid and that the size does
            // not overflow when rounded up to it.
            let new =
                unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
            if !new.is_null() {
                // SAFETY: both pieces hold at least the old size, and a new piece never overlaps
                // an older one.
                unsafe { ptr::copy_nonoverlapping(piece, new, layout.size()) };
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("layout")
    }

    #[test]
    fn pieces_are_aligned_and_do_not_overlap() {
        let mut bump = Bump { next: 5, end: 64 };
        assert_eq!(bump.take(layout(3, 1)), Some(5));
        assert_eq!(bump.take(layout(8, 8)), Some(8));
        assert_eq!(bump.take(layout(48, 16)), Some(16));
        assert_eq!(bump.take(layout(1, 1)), None);
    }

    #[test]
    fn a_refused_piece_changes_nothing() {
        let mut bump = Bump { next: 0, end: 16 };
        assert_eq!(bump.take(layout(17, 1)), None);
        assert_eq!(bump.take(layout(16, 1)), Some(0));
    }

    #[test]
    fn only_the_newest_piece_is_resized_in_place() {
        let mut bump = Bump { next: 0, end: 64 };
        assert_eq!(bump.take(layout(8, 1)), Some(0));
        assert_eq!(bump.take(layout(8, 1)), Some(8));
        assert!(!bump.resize_newest(0, 8, 4));
        assert!(bump.resize_newest(8, 8, 56));
        assert!(!bump.resize_newest(8, 56, 57));
        assert!(bump.resize_newest(8, 56, 0));
        assert_eq!(bump.take(layout(1, 1)), Some(8));
    }

    #[test]
    fn new_memory_continues_or_replaces_the_old() {
        let mut bump = Bump { next: 10, end: 16 };
        bump.add(16, 16);
        assert_eq!((bump.next, bump.end), (10, 32));
        bump.add(64, 16);
        assert_eq!((bump.next, bump.end), (64, 80));
    }

    #[test]
    fn enough_pages_are_asked_for() {
        assert_eq!(pages_for(layout(1, 1)), Some(4));
        assert_eq!(pages_for(layout(5 * PAGE_BYTES, 1)), Some(6));
        assert!(pages_for(layout(isize::MAX as usize, 1)).is_some());
    }
}
