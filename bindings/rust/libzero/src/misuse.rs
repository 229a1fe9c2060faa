//! Misuse that other languages refuse at run time, and that does not compile here: one item a case, whose
//! first example is right and whose others are each wrong in one word.
// SPDX-License-Identifier: BSD-3-Clause

/// Memory that may not be written is no place for what libzero writes.
///
/// ```no_run
/// # use libzero::*;
/// fn right(runtime: &Runtime<'_>, w: ParamId, values: &mut [f32]) -> Result<()> {
///     runtime.get(w, Part::VALUE, 0, values)
/// }
/// ```
/// ```compile_fail
/// # use libzero::*;
/// fn wrong(runtime: &Runtime<'_>, w: ParamId, values: &[f32]) -> Result<()> {
///     runtime.get(w, Part::VALUE, 0, values)
/// }
/// ```
/// ```no_run
/// # use libzero::*;
/// fn right<'a>(model: &mut Model<'a>, values: &'a mut [f32]) -> Result<ParamId> {
///     model.add_in_place("w", &[4], values, &ParamOptions::default())
/// }
/// ```
/// ```compile_fail
/// # use libzero::*;
/// fn wrong<'a>(model: &mut Model<'a>, values: &'a [f32]) -> Result<ParamId> {
///     model.add_in_place("w", &[4], values, &ParamOptions::default())
/// }
/// ```
/// ```compile_fail
/// # use libzero::*;
/// fn wrong(loan: &mut LoanMut<'_>) -> Result<()> {
///     loan.get::<f32>(0)?[0] = 1.0;
///     Ok(())
/// }
/// ```
pub struct ReadOnlyMemory;

/// A handle that has been given up cannot be used.
///
/// ```no_run
/// # use libzero::*;
/// fn right(runtime: Runtime<'_>) -> Result<()> {
///     println!("{}", runtime.step_count());
///     runtime.close()
/// }
/// ```
/// ```compile_fail
/// # use libzero::*;
/// fn wrong(runtime: Runtime<'_>) -> Result<()> {
///     runtime.close()?;
///     println!("{}", runtime.step_count());
///     Ok(())
/// }
/// ```
/// ```compile_fail
/// # use libzero::*;
/// fn wrong(runtime: Runtime<'_>, w: ParamId) -> Result<f32> {
///     let values = runtime.param::<f32>(w)?;
///     runtime.close()?;
///     Ok(values[0])
/// }
/// ```
/// ```compile_fail
/// # use libzero::*;
/// fn wrong(runtime: &mut Runtime<'static>) -> Result<()> {
///     let mut model = Model::new()?;
///     let values = vec![0f32; 4];
///     model.add("w", &[4], &values, &ParamOptions::default())?;
///     runtime.shard(model) // which may keep what does not live long enough
/// }
/// ```
pub struct FreedHandle;

/// A runtime is used by one thread at a time.
///
/// ```no_run
/// # use libzero::*;
/// fn right(mut runtime: Runtime<'static>) {
///     std::thread::spawn(move || runtime.step().map(|info| info.step));
/// }
/// ```
/// ```compile_fail
/// # use libzero::*;
/// fn wrong(runtime: &'static Runtime<'static>) {
///     std::thread::spawn(move || runtime.step_count());
/// }
/// ```
pub struct TwoThreads;
